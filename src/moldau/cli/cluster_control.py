"""``moldau cluster kill|pause|resume|restart``: let a broker of a cluster on this host fail, and come back."""

import signal
import time
from collections.abc import Callable

import click

from moldau.adapters.process_identity import send_signal
from moldau.assembly.local_cluster.state import (
    BrokerProcess,
    LocalClusterError,
    ProcessState,
    existing_state,
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
        return click.command(name)(click.argument("broker_id", metavar="ID", type=int)(function))

    return decorated


@_broker_command("kill")
def kill(broker_id: int, directory: str) -> None:
    """End the process of broker ID at once (SIGKILL), as a crash would. `moldau cluster restart` starts it again."""
    _signal(directory, broker_id, signal.SIGKILL, ProcessState.DEAD)


@_broker_command("pause")
def pause(broker_id: int, directory: str) -> None:
    """Stop the process of broker ID (SIGSTOP): it answers nothing, and its connections stay open."""
    _signal(directory, broker_id, signal.SIGSTOP, ProcessState.PAUSED)


@_broker_command("resume")
def resume(broker_id: int, directory: str) -> None:
    """Continue the process of broker ID (SIGCONT)."""
    _signal(directory, broker_id, signal.SIGCONT, ProcessState.UP)


@_broker_command("restart")
@click.option("--timeout", type=SECONDS, default=60.0, show_default=True, help="How long to wait until it takes requests.")
def restart(broker_id: int, directory: str, timeout: float) -> None:
    """Start broker ID again with the same arguments, and wait until it takes requests. One that runs is stopped in order before."""
    before = existing_state(directory).broker(broker_id)
    request_restart(directory, broker_id)
    end = time.monotonic() + timeout
    while True:
        broker = existing_state(directory).broker(broker_id)
        if broker.process != before.process:
            if broker.state is ProcessState.DEAD:
                raise LocalClusterError(f"broker {broker_id} ended at its start; its log is in {directory}/logs")
            if _serves(broker):
                break
        if time.monotonic() > end:
            raise LocalClusterError(f"broker {broker_id} does not take requests after {timeout:g} s; its log is in {directory}/logs")
        time.sleep(POLL_S)
    say(f"broker {broker_id} takes requests at {broker.address}: pid {broker.pid}")


def _signal(directory: str, broker_id: int, number: signal.Signals, wanted: ProcessState) -> None:
    """Send a signal, and wait until it has had its effect."""
    broker = existing_state(directory).broker(broker_id)
    pid = broker.pid
    if pid is None or not send_signal(broker.process, number):
        raise LocalClusterError(f"broker {broker_id} is dead; `moldau cluster restart {broker_id} --data {directory}` starts it again")
    end = time.monotonic() + SIGNAL_LIMIT_S
    while broker.state is not wanted:
        if time.monotonic() > end:
            raise LocalClusterError(f"broker {broker_id} is {broker.state} after {number.name}, not {wanted}: pid {pid}")
        time.sleep(POLL_S)
    say(f"broker {broker_id} is {wanted}: pid {pid}")


def _serves(broker: BrokerProcess) -> bool:
    """Whether it takes requests, as a member of its cluster."""
    connection = BrokerConnection(broker.host, broker.port, timeout_s=ASK_S)
    try:
        return broker.broker_id in from_response(connection.request(ApiKey.METADATA, MetadataRequest([]))).brokers
    except MoldauError:
        return False
    finally:
        connection.close()
