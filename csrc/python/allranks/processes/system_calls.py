"""What a system call that a thread is in waits for, and whether a time-out is pending in it.

Numbers and arguments are what ``/proc/PID/task/TID/syscall`` shows. Sources: the kernel's tables
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, and the calls' own manual pages. A call
that is not here counts as one with a time-out: nothing is called blocked that is not known to be.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Final, Literal

Limit = Literal["never", "always", "pointer", "milliseconds", "futex", "ring"]


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A call that may wait.

    Parameters
    ----------
    name : str
        Its name.
    x86_64, generic : int
        Its numbers; -1: there is none. `generic` is that of aarch64 and riscv64.
    limit : Limit
        When a time-out is pending: never, always, when the argument is a pointer that is not null, when it is a number
        of milliseconds that is not negative, or as `futex` and `io_uring_enter` have it.
    argument : int
        Which argument.
    uses : {"", "receive", "send"}
        Whether argument 0 is a descriptor that is received from or sent to; a socket may have a time-out of its own.
    """

    name: str
    x86_64: int
    generic: int
    limit: Limit = "never"
    argument: int = 0
    uses: Literal["", "receive", "send"] = ""


_CALLS: Final = (
    SystemCall("read", 0, 63, uses="receive"),
    SystemCall("readv", 19, 65, uses="receive"),
    SystemCall("recvfrom", 45, 207, uses="receive"),
    SystemCall("recvmsg", 47, 212, uses="receive"),
    SystemCall("recvmmsg", 299, 243, "pointer", 4, "receive"),
    SystemCall("accept", 43, 202, uses="receive"),
    SystemCall("accept4", 288, 242, uses="receive"),
    SystemCall("write", 1, 64, uses="send"),
    SystemCall("writev", 20, 66, uses="send"),
    SystemCall("sendto", 44, 206, uses="send"),
    SystemCall("sendmsg", 46, 211, uses="send"),
    SystemCall("sendmmsg", 307, 269, uses="send"),
    SystemCall("splice", 275, 76),
    SystemCall("openat", 257, 56),
    SystemCall("fcntl", 72, 25, "always"),  # of a lock, which anybody on the machine may hold for a while
    SystemCall("flock", 73, 32, "always"),  # the same
    SystemCall("poll", 7, -1, "milliseconds", 2),
    SystemCall("ppoll", 271, 73, "pointer", 2),
    SystemCall("select", 23, -1, "pointer", 4),
    SystemCall("pselect6", 270, 72, "pointer", 4),
    SystemCall("epoll_wait", 232, -1, "milliseconds", 3),
    SystemCall("epoll_pwait", 281, 22, "milliseconds", 3),
    SystemCall("epoll_pwait2", 441, 441, "pointer", 3),
    SystemCall("futex", 202, 98, "futex"),
    SystemCall("futex_waitv", 449, 449, "pointer", 3),
    SystemCall("futex_wait", 455, 455, "pointer", 4),
    SystemCall("pause", 34, -1),
    SystemCall("rt_sigsuspend", 130, 133),
    SystemCall("rt_sigtimedwait", 128, 137, "pointer", 2),
    SystemCall("wait4", 61, 260),
    SystemCall("waitid", 247, 95),
    SystemCall("semop", 65, 193),
    SystemCall("semtimedop", 220, 192, "pointer", 3),
    SystemCall("msgrcv", 70, 188),
    SystemCall("msgsnd", 69, 189),
    SystemCall("mq_timedreceive", 243, 183, "pointer", 4),
    SystemCall("mq_timedsend", 242, 182, "pointer", 4),
    SystemCall("io_getevents", 208, 4, "pointer", 4),
    SystemCall("io_uring_enter", 426, 426, "ring", 3),
    SystemCall("connect", 42, 203, "always"),  # the protocol gives up some time
    SystemCall("nanosleep", 35, 101, "always"),
    SystemCall("clock_nanosleep", 230, 115, "always"),
    SystemCall("restart_syscall", 219, 128, "always"),  # what is restarted by it had a time-out
)

_FUTEX_COMMAND: Final = 0x7F
_FUTEX_WAITS: Final = frozenset({0, 6, 9, 11, 13})  # WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2
_RING_EXTENDED: Final = 8  # IORING_ENTER_EXT_ARG, with which a time-out may come


def by_number(machine: str = platform.machine()) -> dict[int, SystemCall]:
    """Give the calls of a machine by number; empty: its numbers are not known here."""
    if machine == "x86_64":
        return {call.x86_64: call for call in _CALLS if call.x86_64 >= 0}
    if machine in ("aarch64", "riscv64"):
        return {call.generic: call for call in _CALLS if call.generic >= 0}
    return {}


def has_timeout(call: SystemCall, arguments: tuple[int, ...]) -> bool:
    """Whether a time-out is pending in a call with these arguments."""
    given = arguments[call.argument]
    match call.limit:
        case "never":
            return False
        case "always":
            return True
        case "pointer":
            return given != 0
        case "milliseconds":
            return given & 0xFFFF_FFFF < 0x8000_0000
        case "futex":
            return arguments[1] & _FUTEX_COMMAND not in _FUTEX_WAITS or arguments[3] != 0
        case "ring":
            return given & _RING_EXTENDED != 0
