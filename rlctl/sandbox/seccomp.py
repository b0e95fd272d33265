"""The system-call filter of the sandbox: what namespaces and resource limits leave open.

The filter denies calls that would

- change mounts or make namespaces, in which a program would have capabilities again;
- hold memory that no process is charged for, out of reach of the memory limit: ``memfd_create``, System V shared memory, shared
  anonymous mappings, whose pages stay when they are unmapped in part, and pages that pipes and sockets hold (``vmsplice``,
  ``splice``, ``tee``, ``sendfile``; programs copy instead). The buffers of socket pairs keep their default sizes;
- read other processes, load kernel code, or use kernel interfaces that only privileged software needs;
- open a socket: Unix sockets in bound folders and vsock, which reaches the host of a virtual machine, pass network namespaces.
  Internet sockets would reach nothing but the sandbox itself, and hold memory that is never seen: the kernel sends from pages of
  32 KiB, and each byte that waits in a connection can keep such a page, for which neither a process nor the socket is charged.
  Pairs of Unix sockets work, except those for datagrams: each of the two could still send to any Unix socket whose path it knows.

It is a classic BPF program, written for ``bwrap --seccomp``. A denied call fails with EPERM; it does not kill the program.
"""

from __future__ import annotations

import errno
import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT, _FOURTH_ARGUMENT = 16, 24, 32, 40
"""Offsets in ``struct seccomp_data``; the low half of an argument comes first on little-endian machines."""
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_NEW_NAMESPACES = 0x7E020080
"""All CLONE_NEW* flags."""
_SOCK_TYPE, _SOCK_DGRAM, _SOCK_RAW = 0xF, 2, 3
"""The bits of a socket's type, and the types that send without a connection; a raw Unix socket is one for datagrams."""
_SOL_SOCKET, _SO_SNDBUF, _SO_RCVBUF, _SO_ZEROCOPY = 1, 7, 8, 60
_SHARED_ANONYMOUS = 0x21
"""MAP_SHARED and MAP_ANONYMOUS."""
_X32 = 0x40000000
"""System calls of the x32 ABI have this bit, and would pass a filter of the plain numbers."""

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS: dict[str, tuple[int, int]] = {
    # name: (x86_64, aarch64)
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "syslog": (103, 116),
}
"""System calls that are always denied."""
MOVES = {"splice": (275, 76), "tee": (276, 77), "vmsplice": (278, 75), "sendfile": (40, 71)}
"""They fail as for a file that they don't support, so that programs copy instead."""
CLONE, CLONE3, SOCKET, SOCKETPAIR = (56, 220), (435, 435), (41, 198), (53, 199)
MMAP, SETSOCKOPT = (9, 222), (54, 208)
"""Denied depending on their arguments, ``socket`` always. ``clone3`` hides its flags from a filter: it looks unknown, and
libc uses ``clone``."""


def seccomp_filter(machine: str = "") -> bytes | None:
    """Return the filter for a processor architecture, by default this machine's; None if there is none for it."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        return None
    which = list(_ARCHITECTURES).index(machine)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), _fail(errno.ENOSYS)]
    for numbers in NUMBERS.values():
        program += [(_EQUAL, 0, 1, numbers[which]), _fail(errno.EPERM)]
    for numbers in MOVES.values():
        program += [(_EQUAL, 0, 1, numbers[which]), _fail(errno.EINVAL)]
    program += [
        (_EQUAL, 0, 1, CLONE3[which]),
        _fail(errno.ENOSYS),
        (_EQUAL, 0, 4, CLONE[which]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        _fail(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 1, SOCKET[which]),
        _fail(errno.EAFNOSUPPORT),
        (_EQUAL, 0, 6, SOCKETPAIR[which]),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_AND, 0, 0, _SOCK_TYPE),
        (_EQUAL, 1, 0, _SOCK_DGRAM),
        (_EQUAL, 0, 1, _SOCK_RAW),
        _fail(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 5, MMAP[which]),
        (_LOAD, 0, 0, _FOURTH_ARGUMENT),
        (_AND, 0, 0, _SHARED_ANONYMOUS),
        (_EQUAL, 0, 1, _SHARED_ANONYMOUS),
        _fail(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 9, SETSOCKOPT[which]),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_EQUAL, 1, 0, _SOL_SOCKET),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _THIRD_ARGUMENT),
        (_EQUAL, 2, 0, _SO_SNDBUF),
        (_EQUAL, 1, 0, _SO_RCVBUF),
        (_EQUAL, 1, 2, _SO_ZEROCOPY),
        _SUCCEED,
        _fail(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


_SUCCEED = (_RETURN, 0, 0, _ERRNO)
"""Skip the call and return 0. The size of a socket's buffer is a wish, which the kernel itself bounds without an error."""


def _fail(number: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ERRNO | number)
