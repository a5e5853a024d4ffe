"""A sandbox of namespaces: what runs in it can't harm the host, is ended at its limits, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless.environments.sandbox import namespaces
from forgetless.environments.sandbox.base import MEMORY, PROCESSES, Limits
from forgetless.environments.sandbox.load import open_sandbox
from forgetless.environments.sandbox.namespaces import Namespaces
from forgetless.environments.sandbox.shell import EXIT, TIME, Outcome, Shell, once
from forgetless.errors import ConfigError

DOCKERFILE = """\
FROM ubuntu:22.04
RUN apt-get update && apt-get install -y python3
RUN program-of-that-package
ENV PLACE=/home/user
RUN [ -d $PLACE ] || mkdir -p $PLACE
RUN ["mkdir", "/a b"]
RUN mkdir -p $PLACE && useradd -d $PLACE -s /bin/bash user && chown user:user $PLACE
WORKDIR $PLACE
COPY note.txt data/
USER user
RUN cat <<'EOF' > made.txt
$PLACE is kept
EOF
"""
LIMITS = Limits(seconds=30, memory=256 << 20, processes=48, disk=32 << 20)
ENOUGH = 30.0
"""Seconds for a command on a busy machine."""

Run = Callable[[str], Outcome]


def _made(folder: Path, limits: Limits = LIMITS, dockerfile: str = "FROM x\n") -> Namespaces:
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(dockerfile)
    (folder / "note.txt").write_text("a note\n")
    try:
        return Namespaces(folder, limits)
    except ConfigError as error:
        if "sandbox" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespaces]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_KEY", "of the host")
        made = _made(tmp_path_factory.mktemp("task"), dockerfile=DOCKERFILE)
    with contextlib.closing(made):
        yield made


@pytest.fixture(scope="module")
def shell(sandbox: Namespaces) -> Iterator[Shell]:
    with contextlib.closing(Shell(sandbox)) as made:
        yield made


@pytest.fixture
def run(shell: Shell) -> Run:
    shell.run("cd /home/user", ENOUGH)
    return lambda command: shell.run(command, ENOUGH)


def test_the_environment_is_that_of_the_dockerfile(sandbox: Namespaces, run: Run) -> None:
    assert run("pwd; id -un; id -u; cat made.txt data/note.txt; ls /home; ls -d /a*").output.split("\n") == [
        *("/home/user", "user", "1000", "$PLACE is kept", "a note", "user", "/a b", "")
    ]
    fetched, failed = sandbox.missed
    assert fetched.startswith("line 2, 'apt-get update")
    assert failed.startswith("line 3 of the Dockerfile failed, 'program-of-that-package'")


def test_folder_variables_and_functions_last(run: Run) -> None:
    assert run("cd /tmp; x=5; f() { echo f$x; }").code == 0
    assert run("f; pwd").output == "f5\n/tmp\n"
    assert run("false").code == 1
    assert run("read line; echo got $?").output == "got 1\n"
    assert run("break").code == 0
    assert run("echo 'open").code != 0
    assert run("f").output == "f5\n"


@settings(max_examples=15)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
def test_a_command_arrives_byte_for_byte(shell: Shell, text: str) -> None:
    assert shell.run(f"printf %s {shlex.quote(text)}", ENOUGH).output == text


def test_a_shell_that_ends_is_followed_by_another_in_its_place(run: Run) -> None:
    run("cd /tmp")
    ended = run("exit 3")
    assert (ended.code, ended.ended) == (3, EXIT)
    assert run("pwd").output == "/tmp\n"


def test_output_is_cut(run: Run) -> None:
    outcome = run("yes | head -c 300000")
    assert outcome.output.startswith("y\n" * 25_000 + "\n[the output was cut at 50,000 characters")
    assert outcome.code == 0


def test_what_sleeps_for_ever_is_ended(shell: Shell) -> None:
    shell.run("cd /tmp; sleep 1001 &", ENOUGH)
    outcome = shell.run("echo before; sleep 1002", 1.0)
    assert (outcome.output, outcome.code, outcome.ended) == ("before\n", None, TIME)
    assert shell.run("pwd; ps -eo args | grep -c '[s]leep 100'", ENOUGH).output == "/tmp\n0\n"


def test_a_stopped_shell_is_ended(shell: Shell) -> None:
    assert shell.run("kill -STOP $$", 1.0).ended == TIME
    assert shell.run("echo again", ENOUGH).output == "again\n"


def test_what_forks_without_end_is_ended(shell: Shell) -> None:
    outcome = shell.run("f() { f | f & }; f; sleep 20", ENOUGH)
    assert outcome.ended == PROCESSES
    assert int(shell.run("ls /proc | grep -c '^[0-9]'", ENOUGH).output) < 10


def test_memory_is_limited_for_one_process_and_for_all(run: Run) -> None:
    one = "python3 -c 'import time; x = bytearray({} << 20); time.sleep({})'"
    assert "MemoryError" in run(one.format(400, 0)).output
    outcome = run(f"for i in 1 2 3 4 5; do {one.format(80, 20)} & done; wait")
    assert (outcome.code, outcome.ended) == (None, MEMORY)
    assert run("echo again").output == "again\n"


def test_what_fills_the_disk_finds_it_full(run: Run) -> None:
    outcome = run("head -c 100000000 /dev/zero > big; ls -s --block-size=1M big | cut -d' ' -f1; rm big")
    assert "No space left on device" in outcome.output
    assert int(outcome.output.split("\n")[-2]) <= 32
    assert "No space left" in run("head -c 100000000 /dev/zero > /dev/shm/big; rm /dev/shm/big").output
    assert run("echo again > big; cat big").output == "again\n"


def test_the_hosts_files_are_not_there(sandbox: Namespaces, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("of the host")
    script = f"cat {secret} /etc/shadow; ls -A /root /home /srv /opt /mnt /var/lib; env; cat /proc/1/environ; ls /"
    outcome = once(sandbox, ("sh", "-c", script), seconds=ENOUGH, root=True)
    assert "of the host" not in outcome.output
    assert "SECRET_KEY" not in outcome.output
    assert f"{secret}: No such file or directory" in outcome.output
    shadow = [line.split(":") for line in outcome.output.split("\n") if line.count(":") == 8]
    assert {line[1] for line in shadow} <= {"*", "!"}
    assert set(outcome.output.split("/:")[-1].split()) & {"bin", "etc", "usr"}
    here = Path(__file__).resolve()
    assert once(sandbox, ("cat", str(here)), seconds=ENOUGH, root=True).code != 0


@pytest.mark.parametrize(
    "script",
    [
        "mount -t tmpfs none /mnt",
        "mknod /tmp/disk b 8 0",
        "echo 1 > /proc/sys/kernel/panic",
        "echo b > /proc/sysrq-trigger",
        "hostname other",
    ],
)
def test_root_of_a_sandbox_is_no_one_outside(sandbox: Namespaces, script: str) -> None:
    assert once(sandbox, ("sh", "-c", script), seconds=ENOUGH, root=True).code != 0


def test_changes_of_the_system_stay_inside(sandbox: Namespaces) -> None:
    script = "touch /usr/bin/of-the-sandbox && echo x >> /etc/hosts && ls /usr/bin/of-the-sandbox"
    assert once(sandbox, ("sh", "-c", script), seconds=ENOUGH, root=True).code == 0
    assert not Path("/usr/bin/of-the-sandbox").exists()


def test_there_is_no_network_but_its_own_loopback(sandbox: Namespaces, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(path))
        local.listen()
        script = f"""
import socket
def tried(family, address):
    with socket.socket(family) as one:
        one.settimeout(2)
        try:
            one.connect(address)
        except OSError as error:
            return error.strerror
print(tried(socket.AF_INET, {server.getsockname()!r}))
print(tried(socket.AF_INET, ("192.0.2.1", 80)))
print(tried(socket.AF_UNIX, {str(path)!r}))
with socket.create_server(("127.0.0.1", 0)) as server:
    print(tried(socket.AF_INET, server.getsockname()))
print([name for _, name in socket.if_nameindex()])
"""
        outcome = once(sandbox, ("python3", "-c", script), seconds=ENOUGH)
    assert outcome.output.split("\n") == [
        *("Connection refused", "Network is unreachable", "No such file or directory", "None", "['lo']", "")
    ]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    made = _made(tmp_path / "task")
    apart = once(made, ("readlink", "/proc/self/ns/pid"), seconds=ENOUGH).output.strip()
    assert once(made, ("sh", "-c", "sleep 1003 & nohup sleep 1004 &"), seconds=ENOUGH).code == 0
    assert len(_in(apart)) == 3
    assert Path("/proc/self/mounts").read_text() == mounts
    made.close()
    made.close()
    assert not _in(apart)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["task"]


@pytest.mark.usefixtures("sandbox")
def test_a_killed_python_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    script = f"""
from pathlib import Path
from forgetless.environments.sandbox.base import Limits
from forgetless.environments.sandbox.namespaces import Namespaces
from forgetless.environments.sandbox.shell import Shell
made = Namespaces(Path({str(tmp_path)!r}), Limits())
print(Shell(made).run("setsid sleep 1005 & readlink /proc/self/ns/pid", 30).output, flush=True)
input()
"""
    with subprocess.Popen((sys.executable, "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as python:
        assert python.stdout is not None
        apart = python.stdout.readline().decode().strip()
        assert len(_in(apart)) >= 3
        python.send_signal(signal.SIGKILL)
        python.wait()
        _soon(lambda: not _in(apart))


def test_a_sandbox_ends_with_its_life(tmp_path: Path) -> None:
    with contextlib.closing(_made(tmp_path / "task", Limits(life=0.0))) as made:
        _soon(lambda: once(made, ("true",), seconds=ENOUGH).code != 0)


def test_where_there_can_be_none_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="Docker engine, or Linux and root"):
        open_sandbox(tmp_path, LIMITS, "namespaces")
    with pytest.raises(ConfigError, match="not 'jail'"):
        open_sandbox(tmp_path, LIMITS, "jail")


@pytest.mark.usefixtures("sandbox")
def test_what_a_machine_refuses_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(namespaces, "_shown", lambda: ["/no/such/place"])
        with pytest.raises(ConfigError, match=r"lets no sandbox of namespaces be made \(syscall: No such file"):
            open_sandbox(tmp_path, LIMITS, "namespaces")
    monkeypatch.setattr(namespaces, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="-m pip install pytest"):
        open_sandbox(tmp_path, LIMITS, "namespaces")


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("RUN echo no; exit 3", "line 2 of the Dockerfile failed, 'echo no; exit 3': no"),
        ("COPY nothing.txt /", "line 2 of the Dockerfile copies what is not there"),
        ("COPY --from=other / /", "can't be followed without Docker"),
        ("USER nobody-knows\nRUN true", "there is no user 'nobody-knows'"),
    ],
)
def test_a_dockerfile_that_cannot_be_followed_is_named(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM x\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        Namespaces(tmp_path, LIMITS)
    assert told in str(raised.value)


def _in(apart: str) -> list[str]:
    """The processes of a pid namespace."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{name}/ns/pid") == apart:
                found.append(name)
    return found


def _soon(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + ENOUGH
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)
