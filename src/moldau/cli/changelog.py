"""``moldau changelog``: stores that publish their changes, and replicas of them."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "status": LazyCommand("moldau.cli.changelog_status", "status", "Show the master of each shard, and how far replicas are."),
    "publish": LazyCommand("moldau.cli.changelog_publish", "publish", "Publish a database of SQLite or PostgreSQL, until Ctrl-C."),
    "replicate": LazyCommand("moldau.cli.changelog_replicate", "replicate", "Keep a replica in a store, until Ctrl-C, or bring it to now."),
    "wait": LazyCommand("moldau.cli.changelog_wait", "wait", "Wait until a replica has a commit."),
    "compare": LazyCommand("moldau.cli.changelog_compare", "compare", "Compare a source with a replica, and name the rows that differ."),
    "promote": LazyCommand("moldau.cli.changelog_promote", "promote", "Make a replica in SQLite the master of its shard."),
}


@click.group("changelog", cls=LazyGroup, lazy=COMMANDS)
def changelog() -> None:
    """Publish the changes of a database, and keep replicas of it."""
