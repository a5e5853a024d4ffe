"""The SQLite file: whose it is, what it refuses, what several processes and a kill leave of it."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from exchanges import exchange
from forgetless.errors import StoreError
from forgetless.stores.sqlite import MIGRATIONS, Sqlite

TESTS = Path(__file__).parents[1]

WRITER = """
import sys
sys.path.insert(0, {tests!r})
from exchanges import exchange
from forgetless.stores.sqlite import Sqlite
sys.stdin.readline()
store = Sqlite({path!r})
said = []
for n in range({most}):
    said.append(f"{name} {{n}}")
    store.write([exchange(f"{name}-{{n}}", said, conversation="c", state=b"x" * 500) for _ in range(2)])
    print(f"{name}-{{n}}", flush=True)
store.close()
"""


def writer(path: Path, name: str, most: int) -> subprocess.Popen[bytes]:
    """A process that waits for a line, then opens the store and writes, and says what it has written."""
    script = WRITER.format(tests=str(TESTS), path=str(path), name=name, most=most)
    return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_file_and_folders_are_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "made" / "for" / "it.db"
        with closing(Sqlite(path)) as store:
            store.write([exchange("r1", ["secret"])])
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"it.db": 0o600, "it.db-wal": 0o600, "it.db-shm": 0o600}
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]
    assert [file.name for file in path.parent.iterdir()] == ["it.db"], "closing leaves one file"


def test_it_is_there_after_closing(tmp_path: Path) -> None:
    with closing(Sqlite(tmp_path / "s.db")) as store:
        store.write([exchange("r1", ["a", "b"])])
        salt = store.salt
    with closing(Sqlite(str(tmp_path / "s.db"))) as store:
        assert store.salt == salt
        assert store.request("ann", "r1") is not None


def broken(path: Path) -> None:
    path.write_bytes(b"this is no database at all, and long enough for a header of one " * 40)


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE mine (x)")


def newer(path: Path) -> None:
    Sqlite(path).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (broken, "not a database"),
        (foreign, "another program"),
        (newer, "newer forgetless"),
        (Path.mkdir, "Is a directory"),
    ],
)
def test_what_is_no_store_is_refused_by_name_and_left_alone(tmp_path: Path, spoil: object, told: str) -> None:
    path = tmp_path / "spoilt.db"
    spoil(path)  # type: ignore[operator]
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError, match=f"spoilt.db.*{told}"):
        Sqlite(path)
    assert (path.read_bytes() if path.is_file() else b"") == before


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of somebody else's, seen as a user who is not root."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Sqlite(folder / "s.db").close()
        (folder / "s.db").chmod(0o444)
        folder.chmod(0o555)
        if root:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


def test_what_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    with unprivileged() as folder:
        with pytest.raises(StoreError, match=r"new\.db' cannot be written: Permission denied"):
            Sqlite(folder / "new.db")
        with pytest.raises(StoreError, match=r"s\.db' cannot be written: Permission denied"):
            Sqlite(folder / "s.db")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        Sqlite(tmp_path / "file" / "s.db")


def test_several_processes_open_and_write_one_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    processes = [writer(path, name, 40) for name in ("p", "q", "r")]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
    for process in processes:
        assert process.stdout is not None
        process.stdout.read()
        process.stdout.close()
        assert process.wait() == 0
    with closing(Sqlite(path)) as store:
        assert {store.request("ann", f"{name}-{n}") is None for name in "pqr" for n in range(40)} == {False}
        assert [len(branch.nodes) for branch in store.branches("ann", "c")] == [40, 40, 40]
        assert store.check() == []


def test_a_kill_in_the_midst_of_writing_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "killed.db"
    for name in ("first", "second"):
        with writer(path, name, 10**6) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
            written = [process.stdout.readline().decode().strip() for _ in range(60)]
            process.send_signal(signal.SIGKILL)
            written += [line.decode().strip() for line in process.stdout if line.endswith(b"\n")]
        with closing(Sqlite(path)) as store:
            assert store.check() == []
            assert [ident for ident in written if store.request("ann", ident) is None] == []
            assert store.state("ann", "c", [n.key for n in next(store.branches("ann", "c")).nodes]) == b"x" * 500


def test_a_long_history_is_there_at_once_and_comes_to_its_place_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forgetless.stores.inbox.PIECE", 60)
    path, said = tmp_path / "s.db", [f"word {n}" for n in range(100)]
    count = "SELECT (SELECT count(*) FROM inbox), (SELECT count(*) FROM nodes)"
    with closing(Sqlite(path)) as store, closing(sqlite3.connect(path)) as raw:
        store.write([exchange("r1", said)])
        assert raw.execute(count).fetchone() == (1, 0)
        assert store.tidy()
        assert raw.execute(count).fetchone() == (1, 60)
        assert [len(branch.nodes) for branch in store.branches("ann", "c1")] == [100]
        assert raw.execute(count).fetchone() == (0, 100)
        assert not store.tidy()
        store.write([exchange("r2", said, conversation="c2")])
        with closing(Sqlite(path)) as other:
            assert [len(branch.nodes) for branch in other.branches("ann", "c2")] == [100]
        assert raw.execute(count).fetchone() == (0, 200)
        store.write([exchange("r3", ["secret", *said], conversation="c3")])
        assert store.purge(conversation="c3") == 1
        assert store.request("ann", "r3") is None
    assert b"secret" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_what_was_purged_stands_in_no_file(tmp_path: Path) -> None:
    def files() -> bytes:
        return b"".join(file.read_bytes() for file in tmp_path.iterdir())

    with closing(Sqlite(tmp_path / "s.db")) as store:
        for n in range(200):
            store.write([exchange(f"r{n}", [f"secret {n} " + "x" * (n % 20 * 300)], conversation=f"c{n % 2}")])
        assert b"secret 7 " in files()
        before = len(files())
        assert store.purge(conversation="c1") == 1
        assert [n for n in range(200) if f"secret {n} ".encode() in files()] == list(range(0, 200, 2))
        assert len(files()) < before * 0.7


def test_without_contents_no_word_stands_in_any_file(tmp_path: Path) -> None:
    with closing(Sqlite(tmp_path / "s.db", contents=False)) as store:
        store.write([exchange("r1", ["secret words"], state=b"secret state", system=(b'"secret"',))])
        store.remember("ann", "c1", b"k", "secret memory")
        assert b"secret" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def spoil(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(sql)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DELETE FROM nodes WHERE parent IS NULL", "has no parent"),
        ("UPDATE nodes SET content = zeroblob(16)", "has no content"),
        ("UPDATE requests SET head = zeroblob(16)", "has no head"),
        ("UPDATE requests SET base = 'gone' WHERE id = 'r2'", "keeps more of a ledger"),
        ("UPDATE requests SET kept = 2 WHERE id = 'r2'", "keeps more of a ledger"),
        ("UPDATE requests SET system = zeroblob(16)", "system message '0000"),
    ],
)
def test_check_finds_what_hangs_in_the_air(tmp_path: Path, sql: str, told: str) -> None:
    path = tmp_path / "s.db"
    rows = ([0, [0], "raw", False, None, "fits", 1, 1],)
    with closing(Sqlite(path)) as store:
        store.write([exchange("r1", ["a", "b"], rows=rows), exchange("r2", ["a", "b"], base="r1", kept=1)])
        assert store.check() == []
    spoil(path, sql)  # the plain driver does not look at foreign keys
    with closing(Sqlite(path)) as store:
        assert [fault for fault in store.check() if told in fault or "lost what it refers to" in fault]


def test_check_finds_a_page_that_was_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(Sqlite(path)) as store:
        store.write([exchange(f"r{n}", [f"{n}" * 900], conversation=f"c{n}") for n in range(60)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 3000] = b"\xff" * 3000
    path.write_bytes(data)
    with closing(Sqlite(path)) as store:
        assert store.check()


def test_tidying_takes_the_log_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    with closing(Sqlite(path)) as store:
        store.write([exchange(f"r{n}", [f"{n} " + "long " * 20_000], conversation=f"c{n}") for n in range(50)])
        before = path.stat().st_size
        assert Path(f"{path}-wal").stat().st_size > 4 * 2**20
        store.tidy()
        assert path.stat().st_size > before + 4 * 2**20
        assert store.check() == []
