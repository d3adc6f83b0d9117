"""``moldau cluster``: a cluster of brokers on this host, for development and tests."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "up": LazyCommand("moldau.cli.cluster_up", "up", "Start brokers that are one cluster, and stop them by Ctrl-C."),
    "status": LazyCommand("moldau.cli.cluster_status", "status", "Show the brokers' processes, and how partitions stand."),
    "kill": LazyCommand("moldau.cli.cluster_control", "kill", "End brokers at once, as a crash would (kill -9)."),
    "pause": LazyCommand("moldau.cli.cluster_control", "pause", "Stop brokers' processes (SIGSTOP)."),
    "resume": LazyCommand("moldau.cli.cluster_control", "resume", "Continue brokers that are paused (SIGCONT)."),
    "restart": LazyCommand("moldau.cli.cluster_control", "restart", "Start brokers again; one that runs is stopped in order before."),
}


@click.group("cluster", cls=LazyGroup, lazy=COMMANDS)
def cluster() -> None:
    """Run several brokers on this host as one cluster, and let them fail on purpose."""
