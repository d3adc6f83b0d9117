"""``moldau mirror``: keep topics of one cluster in another."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "run": LazyCommand("moldau.cli.mirror_run", "run", "Mirror as a file says, until Ctrl-C."),
    "check": LazyCommand("moldau.cli.mirror_check", "check", "Look for loops, missing topics and missing rights before mirrors run."),
    "status": LazyCommand("moldau.cli.mirror_status", "status", "Show how each partition stands, and how far it lags."),
    "pause": LazyCommand("moldau.cli.mirror_orders", "pause", "Stop mirroring for a while: all, a topic or a partition."),
    "resume": LazyCommand("moldau.cli.mirror_orders", "resume", "End pauses, and try again what has halted."),
    "topics": LazyCommand("moldau.cli.mirror_topics", "topics", "Add topics to a mirror that runs, or remove some."),
    "accept": LazyCommand("moldau.cli.mirror_orders", "accept", "Continue a halted partition from where its source is now."),
    "offsets": LazyCommand("moldau.cli.mirror_offsets", "offsets", "Show where a consumer group continues in the target, or commit it."),
    "promote": LazyCommand("moldau.cli.mirror_promote", "promote", "Have clients write to a copy."),
    "fail-back": LazyCommand("moldau.cli.mirror_fail_back", "fail_back", "Have a former source follow the copy that was promoted."),
}


@click.group("mirror", cls=LazyGroup, lazy=COMMANDS)
def mirror() -> None:
    """Keep topics of one cluster in another: each record once, in its order."""
