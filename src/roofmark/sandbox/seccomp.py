"""The system calls that a candidate may not make, as a BPF program for x86-64."""

from __future__ import annotations

import ctypes
import struct

# number, name: what an untrusted process has no use for and a kernel has had holes in,
# what reaches into other processes, and what outlives a process (System V and POSIX queues and memory)
DENIED = {
    29: "shmget", 64: "semget", 68: "msgget", 101: "ptrace", 155: "pivot_root", 161: "chroot", 163: "acct",
    165: "mount", 166: "umount2", 167: "swapon", 168: "swapoff", 169: "reboot", 175: "init_module",
    176: "delete_module", 179: "quotactl", 240: "mq_open", 246: "kexec_load", 248: "add_key",
    249: "request_key", 250: "keyctl", 272: "unshare", 298: "perf_event_open", 304: "open_by_handle_at",
    308: "setns", 310: "process_vm_readv", 311: "process_vm_writev", 313: "finit_module", 321: "bpf",
    323: "userfaultfd", 425: "io_uring_setup", 426: "io_uring_enter", 427: "io_uring_register",
    428: "open_tree", 429: "move_mount", 430: "fsopen", 431: "fsconfig", 432: "fsmount",
    438: "pidfd_getfd", 440: "process_madvise", 442: "mount_setattr",
}  # fmt: skip
CLONE, CLONE3, SOCKET = 56, 435, 41
AF_UNIX = 1
NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone(2)
AUDIT_ARCH_X86_64 = 0xC000003E
X32_BIT = 0x40000000

LOAD, JUMP_EQ, JUMP_GE, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
KILL, ALLOW = 0x80000000, 0x7FFF0000
EPERM, ENOSYS = 0x00050001, 0x00050000 | 38
NUMBER, ARCH, ARG0 = 0, 4, 16


def program() -> bytes:
    """The filter as an array of `sock_filter`: EPERM for what is denied, death for another ABI."""
    code: list[tuple[int, int, int, int]] = [
        (LOAD, 0, 0, ARCH),
        (JUMP_EQ, 1, 0, AUDIT_ARCH_X86_64),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (JUMP_GE, 0, 1, X32_BIT),
        (RETURN, 0, 0, KILL),
    ]
    for number in sorted(DENIED):
        code += [(JUMP_EQ, 0, 1, number), (RETURN, 0, 0, EPERM)]
    # clone3 hides its flags behind a pointer: libc falls back to clone when it is not there
    code += [(JUMP_EQ, 0, 1, CLONE3), (RETURN, 0, 0, ENOSYS)]
    code += [(JUMP_EQ, 0, 3, CLONE), (LOAD, 0, 0, ARG0)]
    code += [(JUMP_SET, 0, 1, NEW_NAMESPACES), (RETURN, 0, 0, EPERM)]
    code += [(LOAD, 0, 0, NUMBER)]
    code += [(JUMP_EQ, 0, 3, SOCKET), (LOAD, 0, 0, ARG0), (JUMP_EQ, 1, 0, AF_UNIX), (RETURN, 0, 0, EPERM)]
    code += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in code)


def install() -> None:
    """Puts the filter on this process for good; `OSError` where the kernel refuses."""
    data = program()
    buffer = ctypes.create_string_buffer(data, len(data))
    header = struct.pack("HxxxxxxP", len(data) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if libc.prctl(22, 2, ctypes.c_char_p(header), 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "seccomp filter refused")
