"""Ctrl-C and SIGTERM end a command at its next good moment, a second one at once."""

import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from moldau.cli.interruptions import Interruptions


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def outcome_of(program: str) -> tuple[int, str, str]:
    """The exit code of a process that runs these lines, and what it prints on both outputs."""
    program = f"import os, signal, sys, threading\nfrom moldau.cli.interruptions import Interruptions\n{program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_signal_raises_at_once_or_after_what_holds_it() -> None:
    done = []
    with suppress(KeyboardInterrupt), Interruptions() as interruptions:
        with interruptions.held():
            interrupt()
            done.append("held")
        done.append("after")
    assert done == ["held"]
    with Interruptions(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_a_second_signal_does_not_wait_for_what_holds_the_first() -> None:
    done = []
    with suppress(KeyboardInterrupt), Interruptions() as interruptions, interruptions.held():
        interrupt()
        done.append("held")
        interrupt()
        done.append("held on")
    assert done == ["held"]


def test_a_command_may_stop_in_its_own_way() -> None:
    """Claim: the first signal calls it and raises nothing; the handlers of before are there again afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    calls = []
    with Interruptions() as interruptions:
        interruptions.on_stop = lambda: calls.append("stop")
        interrupt()
        assert interruptions.requested
    assert calls == ["stop"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_a_second_signal_ends_a_command_with_processes_of_its_own(how: str) -> None:
    """Claim: it says how; the line and the exit code 130 are those of a first one, whatever threads are at work."""
    program = (
        "threading.Thread(target=threading.Event().wait).start()\n"
        "with Interruptions() as interruptions:\n"
        "    interruptions.on_stop = lambda: print('stop', flush=True)\n"
        "    interruptions.at_once = lambda: print('at once', flush=True)\n"
        "    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)\n"  # as while Spark starts
        f"    signal.raise_signal(signal.{how})\n"
        f"    signal.raise_signal(signal.{how})\n"
    )
    assert outcome_of(program) == (130, "stop\nat once\n", "interrupted\n")


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("command", "code"), [("signal.raise_signal(signal.SIGINT)", 130), ("interruptions.done = True", 0), ("pass", None)]
)
def test_a_signal_while_the_process_ends_does_not_change_how(command: str, code: int | None, how: str) -> None:
    """Claim: not once the command was interrupted, or has said that it is done; else the signal is as it was before."""
    program = (
        "from contextlib import suppress\n"
        "Interruptions.process_ends = True\n"
        "with suppress(KeyboardInterrupt), Interruptions() as interruptions:\n"
        f"    {command}\n"
        f"signal.raise_signal(signal.{how})\n"
        f"sys.exit({code})\n"
    )
    died = -signal.Signals[how].value
    assert outcome_of(program)[0] == (died if code is None else code)


def test_a_signal_that_another_thread_receives_ends_what_the_main_thread_waits_for() -> None:
    """Claim: the handler runs, though the main thread waits for a lock and its wait is not interrupted by the signal itself."""
    program = (
        "asked = threading.Event()\n"
        "def receive():\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "with Interruptions() as interruptions:\n"
        "    interruptions.on_stop = asked.set\n"
        "    threading.Timer(0.2, receive).start()\n"
        "    asked.wait()\n"
        "print('stopped')\n"
    )
    assert outcome_of(program) == (0, "stopped\n", "")
