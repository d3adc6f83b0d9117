"""Which process a number means: ids are reused, so a process is named by its id and by when it was started."""

import os
import signal
from enum import StrEnum
from pathlib import Path

_STOPPED, _ENDED = "Tt", "ZX"


class ProcessState(StrEnum):
    """What has become of a process."""

    UP = "up"
    PAUSED = "paused"
    """A signal has stopped it."""
    DEAD = "dead"


def state_of(identity: str) -> ProcessState:
    """Found out now. An empty identity is that of a process that was never started."""
    if not identity or has_ended(identity):
        return ProcessState.DEAD
    return ProcessState.PAUSED if is_stopped(identity) else ProcessState.UP


def identity_of(pid: int) -> str:
    """A process's id, when it was started, in ticks since boot, and in which namespace of ids, since containers may share a folder that
    names it; without ``/proc`` the id alone."""
    try:
        return f"{pid} {_fields(pid)[19]} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{pid}"


def pid_of(identity: str) -> int:
    """The id in an identity. ValueError."""
    return int(identity.partition(" ")[0])


def is_alive(identity: str) -> bool:
    """Whether the process runs, or may run where it cannot be seen from here."""
    pid, *rest = identity.split()
    if len(rest) == 2 and os.path.isdir("/proc"):
        return rest[1] != os.readlink("/proc/self/ns/pid") or identity == identity_of(int(pid))
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def has_ended(identity: str) -> bool:
    """Whether the process has ended, also if its parent has not taken note of that."""
    return not is_alive(identity) or _letter(pid_of(identity)) in _ENDED


def is_stopped(identity: str) -> bool:
    """Whether the process lives, and a signal has stopped it."""
    return is_alive(identity) and _letter(pid_of(identity)) in _STOPPED


def send_signal(identity: str, number: signal.Signals) -> bool:
    """Send a signal to this process and no other, not even one that gets its id meanwhile: whether it was there."""
    pid = pid_of(identity)
    try:
        descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        try:
            if identity != identity_of(pid) or has_ended(identity):
                return False
            if descriptor is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            if descriptor is not None:
                os.close(descriptor)
    except ProcessLookupError:
        return False
    return True


def _letter(pid: int) -> str:
    """The letter of its state."""
    if not os.path.isdir("/proc"):
        import subprocess

        found = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()
        return found[:1] or "X"
    try:
        return _fields(pid)[0]
    except OSError:
        return "X"


def _fields(pid: int) -> list[str]:
    """Those of ``/proc/PID/stat`` from the state on. OSError."""
    stat = Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()
