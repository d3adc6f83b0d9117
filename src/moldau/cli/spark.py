"""``moldau spark``: the Spark of jobs and loads on this host."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "prepare": LazyCommand(
        "moldau.cli.spark_prepare", "prepare", "Make an archive of Java's classes, once, with which Spark starts faster."
    ),
}


@click.group("spark", cls=LazyGroup, lazy=COMMANDS)
def spark() -> None:
    """The Spark that jobs and loads start on this host."""
