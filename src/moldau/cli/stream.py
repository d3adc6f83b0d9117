"""``moldau stream``: jobs on Spark from topics to topics and tables."""

import click

from moldau.cli.application import LazyCommand, LazyGroup

COMMANDS = {
    "run": LazyCommand("moldau.cli.stream_run", "run", "Run the job of a Python file, or a topology of jobs, until Ctrl-C, or once."),
    "check": LazyCommand("moldau.cli.stream_check", "check", "Look for mistakes in a job or a topology, without running it."),
    "status": LazyCommand("moldau.cli.stream_status", "status", "Show how jobs stand: lag, watermark, state, late rows."),
    "reprocess": LazyCommand("moldau.cli.stream_reprocess", "reprocess", "Make a job's outputs again from long ago, and switch to them."),
    "switch": LazyCommand("moldau.cli.stream_reprocess", "switch", "Switch to what reprocessing has made, when it has caught up."),
    "savepoint": LazyCommand("moldau.cli.stream_savepoint", "savepoint", "Copy a job's checkpoints between two batches."),
    "stop": LazyCommand("moldau.cli.stream_stop", "stop", "Stop a job's process, on whatever host, at the end of its batch."),
}


@click.group("stream", cls=LazyGroup, lazy=COMMANDS)
def stream() -> None:
    """Jobs on Spark that read topics and write topics and tables, each row once."""
