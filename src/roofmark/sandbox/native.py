"""Isolation without bubblewrap: namespaces where allowed, then Landlock, seccomp and dropped capabilities.

Run as a program: `native.py CONFIG -- COMMAND…`. Copied beside `seccomp.py`; stdlib alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
from contextlib import suppress

LIBC = ctypes.CDLL(None, use_errno=True)
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NAMESPACES = 0x10000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x20000000 | 0x00020000
FS_READ = 0b1101  # execute, read_file, read_dir
FS_FILE_ONLY = 0b111 | 1 << 14 | 1 << 15
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 1, 2, 4, 0x4000, 0x40000
MOUNT_SETATTR, AT_RECURSIVE, MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 442, 0x8000, 1, 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38


def landlock_abi() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    version = LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(int(version), 0)


def landlock(readable: list[str], writable: list[str]) -> None:
    """Confines this process to the named places; `OSError` where the kernel can't."""
    abi = landlock_abi()
    if not abi:
        raise OSError("this kernel has no Landlock")
    files = (1 << 13) - 1 | (1 << 13 if abi >= 2 else 0) | (1 << 14 if abi >= 3 else 0) | (1 << 15 if abi >= 5 else 0)
    network = 0b11 if abi >= 4 else 0
    scope = 0b11 if abi >= 6 else 0  # abstract sockets of, and signals to, processes outside
    attributes = struct.pack("QQQ", files, network, scope)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = LIBC.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for places, access in ((readable, FS_READ), (writable, files)):
        for place in places:
            with suppress(FileNotFoundError):
                fd = os.open(place, os.O_PATH | os.O_CLOEXEC)
                allowed = access if os.path.isdir(place) else access & FS_FILE_ONLY
                rule = struct.pack("=Qi", allowed, fd)
                if LIBC.syscall(ADD_RULE, ruleset, 1, rule, ctypes.c_uint32(0)):
                    raise OSError(ctypes.get_errno(), f"landlock_add_rule {place}")
                os.close(fd)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if LIBC.syscall(RESTRICT_SELF, ruleset, ctypes.c_uint32(0)):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(ruleset)


def enter_namespaces(uid: int, gid: int) -> bool:
    """Whether new user, mount, pid, net, ipc and uts namespaces were entered; the caller is pid 1's parent then."""
    if LIBC.unshare(NAMESPACES):
        return False
    with suppress(OSError), open("/proc/self/setgroups", "w") as file:
        file.write("deny")
    for name, number in (("uid_map", uid), ("gid_map", gid)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(f"65534 {number} 1")
    return True


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mounts, or raises `OSError`."""
    code = LIBC.mount(source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None)
    if code:
        raise OSError(ctypes.get_errno(), f"mount {target}")


def arrange_mounts(scratch: str, scratch_bytes: int, masked: list[str]) -> None:
    """Gives a private view: read-only but for scratch and shared memory of bounded size, with its own /proc.

    Landlock knows nothing of chmod, utime and the like: without read-only mounts they would reach every file.
    """
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    read_only("/", AT_RECURSIVE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    for place in (scratch, "/dev/shm"):
        if os.path.isdir(place):
            mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, f"size={scratch_bytes},mode=777")
    for place in masked:
        mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4096,mode=755")


def set_mount(place: str, flags: int, to_set: int, to_clear: int) -> None:
    """Changes the attributes of a mount, or raises `OSError`."""
    attributes = struct.pack("QQQQ", to_set, to_clear, 0, 0)
    code = LIBC.syscall(MOUNT_SETATTR, -100, place.encode(), flags, attributes, ctypes.c_size_t(len(attributes)))
    if code:
        raise OSError(ctypes.get_errno(), f"mount_setattr {place}")


def read_only(place: str, flags: int = 0) -> None:
    """Lets nothing change under `place`."""
    set_mount(place, flags, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0)


def wait_for(pid: int) -> None:
    """Ends as the process `pid` ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def main() -> None:
    """Confines this process and becomes the command."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import seccomp  # type: ignore[import-not-found]  # the file beside this one

    config = json.loads(sys.argv[1])
    command = sys.argv[3:]
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if not enter_namespaces(os.getuid(), os.getgid()):
        sys.exit("namespaces refused")
    init = os.fork()  # pid 1 of its namespace, as under bubblewrap: nothing inside can stop, kill or trace it
    if init:
        wait_for(init)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    arrange_mounts(config["scratch"], config["scratch_bytes"], config["masked"])
    landlock([*config["readable"], "/proc"], config["writable"])
    for capability in range(64):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    seccomp.install()
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
