"""Stores by what users call them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from exchanges import exchange, keys_of
from forgetless.errors import ConfigError
from forgetless.stores.open import default_file, open_store


def test_by_default_it_is_the_file_in_the_users_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for spec in (None, "sqlite"):
        with closing(open_store(spec)) as store:
            store.write([exchange("r1", ["a"])])
    assert (tmp_path / "data" / "forgetless" / "forgetless.db").is_file()


@pytest.mark.parametrize(
    ("platform", "variable", "folder"),
    [
        ("linux", "", ".local/share"),
        ("linux", "XDG_DATA_HOME", "elsewhere"),
        ("darwin", "", "Library/Application Support"),
        ("win32", "", "AppData/Local"),
        ("win32", "LOCALAPPDATA", "elsewhere"),
    ],
)
def test_each_system_has_its_data_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, variable: str, folder: str
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / folder))
    assert default_file() == tmp_path / folder / "forgetless" / "forgetless.db"


def test_a_path_with_and_without_its_kind(tmp_path: Path) -> None:
    for spec in (str(tmp_path / "a"), f"sqlite:{tmp_path / 'a'}"):
        with closing(open_store(spec)) as store:
            store.write([exchange("r1", ["a"])])
            assert len(store.conversations()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_none_keeps_nothing() -> None:
    with closing(open_store("none")) as store, closing(open_store("none")) as other:
        assert len(store.salt) == 16
        assert store.salt != other.salt
        store.write([exchange("r1", ["a"], state=b"x")])
        store.pin("ann", "c1", b"k")
        store.remember("ann", "c1", b"k", "text")
        assert store.locate("ann", keys_of(["a"])) is None
        assert store.state("ann", "c1", keys_of(["a"])) is None
        assert store.memory("ann", "c1", [b"k"]) is None
        assert store.request("ann", "r1") is None
        assert store.pins("ann", "c1") == frozenset()
        assert (store.conversations(), [*store.branches("ann", "c1")], store.purge(), store.check()) == ([], [], 0, [])


@pytest.mark.parametrize(
    "spec", ["memmory", "", "mysql://h/d", "sqlite:", "sqlite:///a.db", "a\0.db", "sqlite://a", "redis://u:hunter2@h/d"]
)
def test_anything_else_is_refused_with_the_forms_that_are_known(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:PATH.*postgresql.*memory, none") as caught:
        open_store(spec)
    assert "hunter2" not in str(caught.value)


def test_nothing_loads_until_it_is_needed() -> None:
    script = """import sys
before = set(sys.modules)  # what measures coverage may load some of these itself
from forgetless.stores.open import open_store
open_store("none")
sys.exit(bool({"sqlite3", "psycopg", "msgspec", "numpy"} & (set(sys.modules) - before)))"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
