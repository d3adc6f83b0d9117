"""``moldau cluster kill|pause|resume|restart``: let brokers of a cluster on this host fail, and come back."""

import signal
import time
from collections.abc import Callable, Sequence

import click

from moldau.adapters.process_identity import ProcessState, pid_of, send_signal
from moldau.assembly.local_cluster.state import (
    BrokerProcess,
    LocalClusterError,
    existing_state,
    log_of,
    not_permitted,
    request_restart,
)
from moldau.cli.options import SECONDS
from moldau.cli.output import say
from moldau.client.connection import BrokerConnection
from moldau.client.metadata import from_response
from moldau.model.errors import MoldauError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest

POLL_S = 0.02
SIGNAL_LIMIT_S = 10.0
ASK_S = 2.0


def _broker_command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    def decorated(function: Callable[..., None]) -> click.Command:
        function = click.option(
            "--data", "directory", metavar="DIR", default="moldau-cluster", show_default=True, help="Directory of the cluster."
        )(function)
        return click.command(name)(click.argument("broker_ids", metavar="ID...", type=int, nargs=-1, required=True)(function))

    return decorated


@_broker_command("kill")
def kill(broker_ids: tuple[int, ...], directory: str) -> None:
    """End the processes of brokers at once (SIGKILL), as a crash would. `moldau cluster restart` starts them again."""
    _signal(directory, broker_ids, signal.SIGKILL, ProcessState.DEAD)


@_broker_command("pause")
def pause(broker_ids: tuple[int, ...], directory: str) -> None:
    """Stop the processes of brokers (SIGSTOP): they answer nothing, and their connections stay open."""
    _signal(directory, broker_ids, signal.SIGSTOP, ProcessState.PAUSED)


@_broker_command("resume")
def resume(broker_ids: tuple[int, ...], directory: str) -> None:
    """Continue the processes of brokers (SIGCONT)."""
    _signal(directory, broker_ids, signal.SIGCONT, ProcessState.UP)


@_broker_command("restart")
@click.option("--timeout", type=SECONDS, default=60.0, show_default=True, help="How long to wait until they take requests.")
def restart(broker_ids: tuple[int, ...], directory: str, timeout: float) -> None:
    """Start brokers again with the same arguments, all at once, and wait until they take requests. One that runs is stopped before."""
    state = existing_state(directory)
    before = {broker_id: state.broker(broker_id).process for broker_id in broker_ids}
    for broker_id in before:
        request_restart(directory, broker_id)
    end = time.monotonic() + timeout
    for broker_id, process in before.items():
        broker = _wait_restarted(directory, broker_id, process, end)
        say(f"broker {broker_id} takes requests at {broker.address}: pid {broker.pid}")


def _wait_restarted(directory: str, broker_id: int, before: str, end: float) -> BrokerProcess:
    """Until it takes requests, in another process than before."""
    log = f"its log is {log_of(directory, broker_id)}"
    while True:
        broker = existing_state(directory).broker(broker_id)
        if broker.process != before:
            if broker.state is ProcessState.DEAD:
                raise LocalClusterError(f"broker {broker_id} ended at its start; {log}")
            if _serves(broker):
                return broker
        if time.monotonic() > end:
            raise LocalClusterError(f"broker {broker_id} takes no requests yet (--timeout); {log}")
        time.sleep(POLL_S)


def _signal(directory: str, broker_ids: Sequence[int], number: signal.Signals, wanted: ProcessState) -> None:
    """Send a signal to each, and wait until it has had its effect."""
    state = existing_state(directory)
    brokers = {broker: broker.pid for broker in map(state.broker, broker_ids)}
    for broker in brokers:
        try:
            sent = bool(broker.process) and send_signal(broker.process, number)
        except PermissionError as error:
            raise not_permitted(directory, f"send {number.name} to broker {broker.broker_id}, pid {pid_of(broker.process)}") from error
        if not sent:
            start = f"restart {broker.broker_id}" if state.is_supervised else "up"
            advice = f"`moldau cluster {start} --data {directory}` starts {'it' if state.is_supervised else 'the cluster'} again"
            raise LocalClusterError(f"broker {broker.broker_id} is dead; {advice}")
    end = time.monotonic() + SIGNAL_LIMIT_S
    for broker, pid in brokers.items():
        while broker.state is not wanted:
            if time.monotonic() > end:
                raise LocalClusterError(f"broker {broker.broker_id} is {broker.state} after {number.name}, not {wanted}: pid {pid}")
            time.sleep(POLL_S)
        say(f"broker {broker.broker_id} is {wanted}: pid {pid}")


def _serves(broker: BrokerProcess) -> bool:
    """Whether it takes requests, as a member of its cluster."""
    connection = BrokerConnection(broker.host, broker.port, timeout_s=ASK_S)
    try:
        return broker.broker_id in from_response(connection.request(ApiKey.METADATA, MetadataRequest([]))).brokers
    except MoldauError:
        return False
    finally:
        connection.close()
