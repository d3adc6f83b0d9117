"""``moldau partition``: which brokers have the replicas of partitions, and which of them lead."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "reassign": LazyCommand("moldau.cli.partition_reassign", "reassign", "Move replicas to other brokers, list, verify and cancel moves."),
    "elect": LazyCommand("moldau.cli.partition_elect", "elect", "Elect preferred leaders, or leaders of partitions that have none."),
    "balance": LazyCommand("moldau.cli.partition_balance", "balance", "Even out replicas and leaders over the brokers, in few moves."),
}


@click.group("partition", cls=LazyGroup, lazy=COMMANDS)
def partition() -> None:
    """Say which brokers have the replicas of partitions, and which of them lead."""
