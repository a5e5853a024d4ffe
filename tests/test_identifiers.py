"""What counts as an identifier, and what it is to hold one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.identifiers import contains, identifiers


@pytest.mark.parametrize(
    "name",
    [
        "/etc/hosts",
        "~/notes",
        "./run.sh",
        "../src/a",
        "src/main.py",
        "a/b/c",
        "report.txt",
        "archive.tar.gz",
        "os.path",
        ".env.local",
        "550e8400-e29b-41d4-a716-446655440000",
        "5950ff933bb0",
        "0xdeadbeef",
        "10.0.0.7",
        "10.0.0.7:8080",
        "10.0.0.0/16",
        "https://example.org/a?b=c&d=1",
        "jo.doe+x@example.org",
        "v1.2",
        "1.2.3",
        "1.2.3-rc.1",
        "12345",
        "2024-05-01",
        "2024-05-01T10:20:30Z",
        "--dry-run",
        "DATABASE_URL",
        "__init__",
        "user_id",
        "MemAvailable",
        "getUser",
        "host01",
        "eth0",
        "AST-00292",
        "prod-db-01",
        "C:\\Temp\\a.txt",
    ],
)
def test_identifiers_are_found_whole(name: str) -> None:
    assert identifiers(name) == [name]
    for text in (f"use {name} now", f"({name})", f'"{name}",', f"see {name}.", f"a\n{name}\nb", f"x={name};"):
        assert name in identifiers(text), text
        assert contains(text, name)


@pytest.mark.parametrize(
    "prose",
    [
        "Hello there, it is a plain text.",
        "and/or",
        "half, i.e. 1/2, e.g. 0.25 or 1234",
        "state-of-the-art",
        "the 3rd of 10kB, 5MB and 100ms",
        "NASA or HTTP",
        "-x -y",
        "___",
        "/24",
        "really?!...",
        "",
    ],
)
def test_prose_has_none(prose: str) -> None:
    assert identifiers(prose) == []


def test_order_and_each_once() -> None:
    assert identifiers("cp /a/b.txt /a/c.txt && rm /a/b.txt") == ["/a/b.txt", "/a/c.txt"]
    assert identifiers("ls /srv/data/ /srv/data") == ["/srv/data"]


def test_escapes_in_scripts_are_no_part_of_names() -> None:
    assert identifiers(r'printf "%s\nhost_name"') == ["host_name"]
    assert contains(r"a\nhost_name", "host_name")
    assert not contains("anhost_name", "host_name")


@pytest.mark.parametrize(
    ("text", "name", "held"),
    [
        ("/x/report.txt", "report.txt", True),
        ("/x/report.txt.bak", "report.txt", True),
        ("myreport.txt", "report.txt", False),
        ("report.txts", "report.txt", False),
        ("Report.txt", "report.txt", False),
        ("10.0.0.10 10.0.0.1", "10.0.0.1", True),
        ("10.0.0.10", "10.0.0.1", False),
        ("host_1", "host", False),
        ("", "host", False),
    ],
)
def test_held_byte_for_byte_and_bounded(text: str, name: str, held: bool) -> None:
    assert contains(text, name) is held


@given(st.text(alphabet="ab1_/.-@:\\ \n\u00e9", max_size=40))
def test_every_text_holds_its_identifiers(text: str) -> None:
    for name in identifiers(text):
        assert name in text


@given(st.text(max_size=20), st.sampled_from(["/etc/hosts", "user_id", "10.0.0.7"]), st.text(max_size=20))
def test_containment_needs_the_bytes(before: str, name: str, after: str) -> None:
    assert contains(f"{before} {name} {after}", name)
    assert not contains(f"{before} {name[:-1]}", name) or name in before
