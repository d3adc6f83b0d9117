"""``moldau tiers``: clusters of several data centres, and what runs between them, by one file."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "up": LazyCommand("moldau.cli.tiers_up", "up", "Start all that a file names on this host, and stop it by Ctrl-C."),
    "status": LazyCommand("moldau.cli.tiers_status", "status", "Show all processes."),
    "kill": LazyCommand("moldau.cli.tiers_control", "kill", "End processes at once, as a crash would (kill -9)."),
    "restart": LazyCommand("moldau.cli.tiers_control", "restart", "Stop processes in order, and wait until they run again."),
    "down": LazyCommand("moldau.cli.tiers_control", "down", "Stop all processes in order."),
    "check": LazyCommand("moldau.cli.tiers_check", "check", "Look for mistakes in a file: loops, missing mirrors and audits."),
}


@click.group("tiers", cls=LazyGroup, lazy=COMMANDS)
def tiers() -> None:
    """Run local, aggregate and offline clusters with their mirrors and auditors on this host, by one file."""
