"""``moldau lake``: tables, for their readers and for those who look after them."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "wait": LazyCommand("moldau.cli.lake_wait", "wait", "Wait until a table is complete up to a time."),
    "merge": LazyCommand("moldau.cli.lake_merge", "merge", "Keep a table with one row for each key beside an append-only one."),
    "doctor": LazyCommand("moldau.cli.lake_doctor", "doctor", "Name what is wrong with a table or grows, and repair it."),
}


@click.group("lake", cls=LazyGroup, lazy=COMMANDS)
def lake() -> None:
    """Wait for lake tables, merge them, and look after them. No Spark is started."""
