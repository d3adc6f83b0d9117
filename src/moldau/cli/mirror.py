"""``moldau mirror``: keep topics of one cluster in another."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "run": LazyCommand("moldau.cli.mirror_run", "run", "Mirror as a file says, until Ctrl-C."),
}


@click.group("mirror", cls=LazyGroup, lazy=COMMANDS)
def mirror() -> None:
    """Keep topics of one cluster in another: each record once, in its order."""
