"""The way into Linux namespaces: makes a sandbox, enters one, or ends all that runs in one.

It runs as a process of its own, by path and with the standard library alone, because it changes what a process is. All
that it needs is loaded before anything of the sandbox can be: what lies in there is not trusted. The root user of a
sandbox is an ordinary user of the host, who owns nothing there.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

BASE = 0x70000000
"""The host's user id of the sandbox's root; it and the 65,535 behind it belong to no one else."""

STAGE = "/tmp"
"""Covered, in a mount namespace that no one else sees, by the file system that the sandbox writes to."""

SYSTEM = frozenset(("bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr"))
"""What is seen of the host's root."""

FRESH = {
    **dict.fromkeys(("boot", "dev", "etc", "home", "media", "mnt", "opt", "proc", "run", "srv", "sys", "var"), 0o755),
    **dict.fromkeys(("var/cache", "var/lib", "var/log", "var/spool"), 0o755),
    **dict.fromkeys(("run/lock", "tmp", "var/tmp"), 0o1777),
    "root": 0o711,
}
"""Folders that are the sandbox's own, and empty at first; of `etc` only what it changes."""

DEVICES = ("full", "null", "random", "tty", "urandom", "zero")

NAMESPACES = {"cgroup": 0x02000000, "ipc": 0x08000000, "net": 0x40000000, "pid": 0x20000000, "uts": 0x04000000}
MOUNTS, USERS = 0x00020000, 0x10000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_IDMAP = 1, 2, 4, 1 << 20
AT_FDCWD, AT_EMPTY_PATH, OPEN_TREE_CLONE, MOVE_EMPTY_PATH = -100, 0x1000, 1, 4
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
"""Numbers of system calls that the C library has no function for; the same on every machine."""
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4

FILES = 1 << 20
"""More than a process has open."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *values: int | bytes | None) -> int:
    """A function of the C library; raises OSError, with its name."""
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in values]
    found: int = getattr(_LIBC, name)(*given)
    if found == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return found


def _mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), flags, options.encode() or None)


def make(given: Mapping[str, Any]) -> None:
    """Make a sandbox; it lasts for as long as the other end of stdin is open. The pid of its init goes to stdout.

    Args:
        given: `disk` in bytes, and `shown`: paths that are seen, read-only, where they are.
    """
    users = _user_namespace()
    _call("unshare", MOUNTS | sum(NAMESPACES.values()))
    _mount("none", "/", "none", MS_REC | MS_PRIVATE)
    lower = _clone("/", users, ATTR_RDONLY)
    shown = {path: _clone(path, users, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV) for path in given["shown"]}
    root = _root(lower, given["disk"], list(shown))
    for path, tree in shown.items():
        _attach(tree, root + path)
    init = os.fork()
    if init:
        os.write(1, f"{init}\n".encode())
        for number in (0, 1, 2):
            os.close(number)
        os.waitpid(init, 0)
        return
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    _devices(root)
    _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    os.chdir(root)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    _loopback()
    socket.sethostname("sandbox")
    _call("setns", users, USERS)
    os.closerange(3, FILES)
    _become(0, 0, [])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans are reaped by the kernel, also when this is another program
    os.write(1, b"ready\n")
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    os.execve("/bin/cat", ["init"], {})


def _user_namespace() -> int:
    """A user namespace whose users are those behind BASE, as a file descriptor."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        _call("unshare", USERS)
        os.write(there, b".")
        signal.pause()
    os.close(there)
    try:
        if not os.read(here, 1):
            raise OSError(errno.EPERM, "unshare: no user namespace can be made")
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(f"0 {BASE} 65536")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    finally:
        os.close(here)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _clone(path: str, users: int, flags: int) -> int:
    """A mount of a folder in which the host's users 0 to 65,535 are the sandbox's, not attached yet."""
    tree = _call("syscall", OPEN_TREE, AT_FDCWD, path.encode(), OPEN_TREE_CLONE | os.O_CLOEXEC)
    wanted = struct.pack("QQQQ", flags | ATTR_IDMAP, 0, 0, users)
    _call("syscall", MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, wanted, len(wanted))
    return tree


def _attach(tree: int, path: str) -> None:
    _call("syscall", MOVE_MOUNT, tree, b"", AT_FDCWD, path.encode(), MOVE_EMPTY_PATH)
    os.close(tree)


def _root(lower: int, disk: int, shown: list[str]) -> str:
    """The sandbox's root: the host's system below, and above it what the sandbox changes, in memory and limited."""
    hidden = [name for name in os.listdir("/") if name not in SYSTEM and name not in FRESH]
    private = {path: os.path.isdir(path) for path in _private("/etc")}
    accounts = {name: [line for line in _lines(f"/etc/{name}") if not _personal(line)] for name in ("passwd", "group")}
    _mount("tmpfs", STAGE, "tmpfs", MS_NODEV, f"size={disk},nr_inodes={disk // 4096},mode=755")
    below, upper, work, root = (f"{STAGE}/{name}" for name in ("below", "upper", "work", "root"))
    for path in (below, upper, work, root):
        os.mkdir(path)
    os.chown(upper, BASE, BASE)
    _attach(lower, below)
    for name, mode in FRESH.items():
        _folder(upper, name, mode)
    for path in shown:
        _folder(upper, path)
    for name in os.listdir(upper):
        if name not in SYSTEM:
            _opaque(f"{upper}/{name}")
    for name in hidden:
        if not os.path.isdir(f"{upper}/{name}"):
            _whiteout(f"{upper}/{name}")
    _own(upper, private, accounts)
    _mount("overlay", root, "overlay", MS_NODEV, f"lowerdir={below},upperdir={upper},workdir={work}")
    return root


def _own(upper: str, private: Mapping[str, bool], accounts: Mapping[str, list[str]]) -> None:
    """What the sandbox has in /etc in place of the host's: nothing private, and the accounts of the system alone."""
    for path, is_folder in private.items():
        _folder(upper, path if is_folder else os.path.dirname(path))
        if is_folder:
            _opaque(upper + path)
        else:
            _whiteout(upper + path)
    for name, lines in accounts.items():
        _written(f"{upper}/etc/{name}", "".join(f"{line}\n" for line in lines))
    shadow = "".join(f"{line.partition(':')[0]}:*:19000:0:99999:7:::\n" for line in accounts["passwd"])
    _written(f"{upper}/etc/shadow", shadow, 0o640)
    _written(f"{upper}/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n")
    _written(f"{upper}/etc/hostname", "sandbox\n")


def _folder(upper: str, path: str, mode: int = 0o755) -> None:
    """Make a folder of the sandbox's root, and those on the way, unless they are there."""
    whole = upper
    for part in filter(None, path.split("/")):
        whole = f"{whole}/{part}"
        if not os.path.isdir(whole):
            os.mkdir(whole)
            os.chmod(whole, mode)
            os.chown(whole, BASE, BASE)


def _private(folder: str) -> Iterator[str]:
    """What not every user of the host may read."""
    for entry in os.scandir(folder):
        if entry.is_symlink():
            continue
        if not entry.stat().st_mode & stat.S_IROTH:
            yield entry.path
        elif entry.is_dir():
            yield from _private(entry.path)


def _personal(line: str) -> bool:
    """Whether a line of passwd or group is that of a person, not of the system."""
    number = [*line.split(":"), "", "", ""][2]
    return number.isdigit() and 1000 <= int(number) < 60000


def _whiteout(path: str) -> None:
    """What an overlay takes for the mark of something removed."""
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def _opaque(path: str) -> None:
    """Hide what the folder has below; an overlay's own mark for that."""
    os.setxattr(path, "trusted.overlay.opaque", b"y")


def _written(path: str, text: str, mode: int = 0o644) -> None:
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    os.chown(path, BASE, BASE)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _devices(root: str) -> None:
    """The devices that every program may use, terminals of its own, and shared memory."""
    dev = f"{root}/dev"
    _mount("tmpfs", dev, "tmpfs", MS_NOSUID, f"size=64k,mode=755,uid={BASE},gid={BASE}")
    for name in DEVICES:
        os.close(os.open(f"{dev}/{name}", os.O_CREAT, 0o666))
        _mount(f"/dev/{name}", f"{dev}/{name}", "none", MS_BIND)
    for name in ("pts", "shm"):
        os.mkdir(f"{dev}/{name}")
    _mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID | MS_NOEXEC, f"newinstance,ptmxmode=666,mode=620,gid={BASE + 5}")
    _mount("tmpfs", f"{dev}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        os.symlink(target, f"{dev}/{name}")


def _loopback() -> None:
    """Switch the loopback interface on, the only one that there is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def _become(user: int, group: int, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def enter(given: Mapping[str, Any]) -> int:
    """Run a program in a sandbox; its exit code, or 128 and the number of the signal that ended it.

    Args:
        given: `proc`, an open /proc folder of the sandbox's init; `argv`, `env`, `folder`, `user`; `memory` in bytes
            and `processes`.
    """
    mounts, users = (os.open(f"ns/{name}", os.O_RDONLY, dir_fd=given["proc"]) for name in ("mnt", "user"))
    child = _forked(given["proc"])
    if child:
        return _waited(child)
    _call("setns", mounts, MOUNTS)
    for limit, most in (
        (resource.RLIMIT_NPROC, given["processes"]),
        (resource.RLIMIT_DATA, given["memory"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    _call("setns", users, USERS)
    os.closerange(3, FILES)
    _become(0, 0, [])
    user, group, groups, home = _looked_up(given["user"])
    _become(user, group, groups)
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and its children would
    os.setsid()
    os.umask(0o022)
    try:
        os.chdir(given["folder"])
        os.execvpe(given["argv"][0], given["argv"], {"HOME": home, **given["env"]})
    except OSError as error:
        os.write(2, f"{given['argv'][0]} in {given['folder']}: {error.strerror}\n".encode())
        os._exit(127)


def end(given: Mapping[str, Any]) -> int:
    """End every process of a sandbox but its init.

    Args:
        given: `proc`, as for `enter`.
    """
    child = _forked(given["proc"])
    if child:
        return _waited(child)
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # all at once, so that none can fork away
    os._exit(0)


def _forked(proc: int) -> int:
    """Fork into a sandbox's namespaces, but for mounts and users: the host's root may always fork; 0 in the child."""
    _call("prctl", PR_SET_DUMPABLE, 0)  # or the sandbox could reach the host's files through this process
    for name, flag in NAMESPACES.items():
        one = os.open(f"ns/{name}", os.O_RDONLY, dir_fd=proc)
        _call("setns", one, flag)
        os.close(one)
    return os.fork()


def _waited(child: int) -> int:
    for number in (0, 1, 2):
        os.close(number)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _looked_up(user: str) -> tuple[int, int, list[int], str]:
    """Numbers, further groups and home folder of a user of the sandbox, `NAME`, `UID` or either with `:GROUP`."""
    wanted, _, other = user.partition(":")
    for line in _lines("/etc/passwd"):
        name, _, number, group, _, home, *_ = [*line.split(":"), *[""] * 7]
        if wanted in (name, number) and number.isdigit() and group.isdigit():
            groups = [_group(other)] if other else [int(group), *_groups(name)]
            return int(number), groups[0], groups, home or "/"
    if not wanted.isdigit():
        os.write(2, f"there is no user {wanted!r}\n".encode())
        os._exit(126)
    alone = _group(other) if other else 0
    return int(wanted), alone, [alone], "/"


def _groups(user: str) -> Iterator[int]:
    for line in _lines("/etc/group"):
        _, _, number, members, *_ = [*line.split(":"), *[""] * 4]
        if user in members.split(",") and number.isdigit():
            yield int(number)


def _group(wanted: str) -> int:
    for line in _lines("/etc/group"):
        name, _, number, *_ = [*line.split(":"), *[""] * 3]
        if wanted == name and number.isdigit():
            return int(number)
    return int(wanted) if wanted.isdigit() else 0


def main() -> None:
    """Do what the arguments say: the name of a deed, and what it is given as JSON. A refusal is one line on stderr."""
    deeds: Mapping[str, Callable[[Mapping[str, Any]], int | None]] = {"make": make, "enter": enter, "end": end}
    try:
        raise SystemExit(deeds[sys.argv[1]](json.loads(sys.argv[2])))
    except OSError as error:
        os.write(2, f"{error.strerror or error}\n".encode())
        os._exit(125)


if __name__ == "__main__":
    main()
