"""``moldau stream stop``: an order to a job's process."""

from datetime import UTC, datetime

import click

from moldau.cli.options import SECONDS, TEXT, bootstrap_option
from moldau.cli.output import say


@click.command("stop")
@click.argument("job", metavar="JOB", type=TEXT)
@bootstrap_option
@click.option("--timeout", metavar="SECONDS", type=SECONDS, default=60.0, show_default=True, help="How long to wait until it has stopped.")
def stop(job: str, bootstrap: str, timeout: float) -> None:
    """Have the process of JOB stop at the end of its batch, on whatever host it runs, and wait for it.

    A job that does not run is no error.
    """
    from moldau.model.extras import require

    require("lake", "an order to a stream job")
    from moldau.streams.operator import StreamOperator

    operator = StreamOperator(bootstrap)
    try:
        report = operator.stop(job, timeout)
    finally:
        operator.close()
    when = datetime.fromtimestamp(report.at_ms / 1000, UTC).strftime("%F %T UTC")
    say(f"job {job}: {report.who}: {report.state.value} at {when}")
