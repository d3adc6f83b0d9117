"""The first contact of a command with a broker.

A broker that was only just started listens a moment later, so a command tries until its time is over, as Kafka's tools do. After a
second it says what it waits for; the last line says for how long it did. A host name that nobody knows is not waited for.
"""

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from moldau.model.errors import WorldError

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

TELL_AFTER_S = 1.0


def wait_for_broker(cluster: "Cluster", monotonic: Callable[[], float] = time.monotonic) -> None:
    """Return as soon as a broker has answered. click.ClickException when none has within the cluster's `timeout_s`."""
    retry, begun, told = cluster.retry(), monotonic(), False
    while True:
        try:
            cluster.metadata([])
            return
        except WorldError as error:
            if _is_unknown_host(error):
                raise
            trouble = error
        try:
            retry.pause(trouble)
        except WorldError as last:
            raise click.ClickException(f"{last} (tried for {cluster.timeout_s:g} s)") from last
        if not told and monotonic() - begun >= TELL_AFTER_S:
            click.echo(f"{trouble}; trying for {cluster.timeout_s:g} s", err=True)
            told = True


def _is_unknown_host(error: WorldError) -> bool:
    cause = error.__cause__
    return isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN
