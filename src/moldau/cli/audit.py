"""``moldau audit``: count a cluster as a tier, compare the tiers, and report what is missing or doubled."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "run": LazyCommand("moldau.cli.audit_run", "run", "Count every topic of a cluster by the headers of its events."),
    "report": LazyCommand("moldau.cli.audit_report", "report", "Compare the tiers, and name the hosts at fault."),
    "forget": LazyCommand("moldau.cli.audit_forget", "forget", "Take the counts of a tier back."),
    "watch": LazyCommand("moldau.cli.audit_report", "watch", "Show how the tiers compare, again and again."),
}


@click.group("audit", cls=LazyGroup, lazy=COMMANDS)
def audit() -> None:
    """Prove that nothing is missing or doubled, and name the host at fault when something is."""
