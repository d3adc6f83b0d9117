"""``moldau broker``: takes load off a broker."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {"drain": LazyCommand("moldau.cli.broker_drain", "drain", "Move leaders, and with --replicas all replicas, to other brokers.")}


@click.group("broker", cls=LazyGroup, lazy=COMMANDS)
def broker() -> None:
    """Take load off a broker."""
