"""Ctrl-C and SIGTERM end a command at its next good moment, a second one at once."""

import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from moldau.cli.interruptions import Interruptions


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def outcome_of(program: str) -> tuple[int, str]:
    """The exit code of a process that runs these lines, and what it prints."""
    program = f"import signal, threading\nfrom moldau.cli.interruptions import Interruptions\n{program}"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


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


def test_a_second_signal_ends_a_command_with_processes_of_its_own() -> None:
    """Claim: it says how, and the exit code is 130 whatever threads are at work."""
    program = (
        "threading.Thread(target=threading.Event().wait).start()\n"
        "with Interruptions() as interruptions:\n"
        "    interruptions.on_stop = lambda: print('stop', flush=True)\n"
        "    interruptions.at_once = lambda: print('at once', flush=True)\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "    signal.raise_signal(signal.SIGINT)\n"
    )
    assert outcome_of(program) == (130, "stop\nat once\n")


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
    assert outcome_of(program) == (0, "stopped\n")
