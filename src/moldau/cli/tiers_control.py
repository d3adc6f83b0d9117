"""``moldau tiers kill|restart|down``: let processes of tiers on this host fail and come back, and stop all of them."""

import signal
import time
from collections.abc import Sequence

import click

from moldau.adapters.process_identity import ProcessState, has_ended, pid_of, send_signal
from moldau.cli.options import SECONDS
from moldau.cli.output import say
from moldau.cli.tiers_options import data_option
from moldau.tiers.state import TierProcess, TiersError, TiersState, existing_tiers_state, log_of, restarted

POLL_S = 0.05


@click.command("kill")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@data_option
def kill(names: tuple[str, ...], directory: str) -> None:
    """End processes at once (SIGKILL), as a crash would: mirror.NAME, auditor.NAME, broker.CLUSTER, as `moldau tiers status` has them.

    `moldau tiers up` starts them again.
    """
    for process in _living(existing_tiers_state(directory), directory, names):
        _send(process, signal.SIGKILL)
        say(f"{process.name} is killed: pid {pid_of(process.process)}")


@click.command("restart")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@data_option
@click.option("--timeout", type=SECONDS, default=60.0, show_default=True, help="How long to wait until they run again.")
def restart(names: tuple[str, ...], directory: str, timeout: float) -> None:
    """Stop processes in order, and wait until `moldau tiers up` has started them again."""
    state = existing_tiers_state(directory)
    if not state.is_supervised:
        raise _not_running(directory)
    before = _living(state, directory, names)
    for process in before:
        _send(process, signal.SIGTERM)
        send_signal(process.process, signal.SIGCONT)
    end = time.monotonic() + timeout
    for process in before:
        after = _wait_restarted(process, directory, end)
        say(f"{process.name} runs again: pid {after.pid}")


@click.command("down")
@data_option
@click.option("--timeout", type=SECONDS, default=120.0, show_default=True, help="How long to wait until all have ended.")
def down(directory: str, timeout: float) -> None:
    """Stop all processes in order, as Ctrl-C does where `moldau tiers up` runs, and wait for that."""
    state = existing_tiers_state(directory)
    if not state.is_supervised:
        raise _not_running(directory)
    send_signal(state.supervisor, signal.SIGTERM)
    end = time.monotonic() + timeout
    while not has_ended(state.supervisor):
        if time.monotonic() > end:
            raise TiersError(f"{directory}: not all processes have ended (--timeout): `moldau tiers up` is pid {pid_of(state.supervisor)}")
        time.sleep(POLL_S)
    say(f"{state.name} is down")


def _not_running(directory: str) -> TiersError:
    return TiersError(f"{directory}: `moldau tiers up` does not run here")


def _living(state: TiersState, directory: str, names: Sequence[str]) -> list[TierProcess]:
    """These processes. TiersError if one does not run."""
    found = [state.process(directory, name) for name in dict.fromkeys(names)]
    for process in found:
        if process.state is ProcessState.DEAD:
            raise _dead(process)
    return found


def _send(process: TierProcess, number: signal.Signals) -> None:
    if not send_signal(process.process, number):
        raise _dead(process)


def _dead(process: TierProcess) -> TiersError:
    return TiersError(f"{process.name} is dead; `moldau tiers up` starts it again while it runs")


def _wait_restarted(before: TierProcess, directory: str, end: float) -> TierProcess:
    """Until it has begun its work in another process than before."""
    while (now := restarted(directory, before)) is None:
        if time.monotonic() > end:
            raise TiersError(f"{before.name} does not run again yet (--timeout); its log is {log_of(directory, before.name)}")
        time.sleep(POLL_S)
    return now
