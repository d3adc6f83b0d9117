"""``moldau mirror``: keep topics of one cluster in another."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "run": LazyCommand("moldau.cli.mirror_run", "run", "Mirror as a file says, until Ctrl-C."),
    "promote": LazyCommand("moldau.cli.mirror_promote", "promote", "Have clients write to a copy."),
    "fail-back": LazyCommand("moldau.cli.mirror_fail_back", "fail_back", "Have a former source follow the copy that was promoted."),
}


@click.group("mirror", cls=LazyGroup, lazy=COMMANDS)
def mirror() -> None:
    """Keep topics of one cluster in another: each record once, in its order."""
