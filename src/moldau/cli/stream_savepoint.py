"""``moldau stream savepoint``: a copy of a job's checkpoints."""

import os

import click

from moldau.cli.options import SECONDS, TEXT, bootstrap_option
from moldau.cli.output import say


@click.command("savepoint")
@click.argument("job", metavar="JOB", type=TEXT)
@click.option("--to", metavar="DIR", type=TEXT, required=True, help="A directory that does not exist yet, as the job's process sees it.")
@bootstrap_option
@click.option("--timeout", metavar="SECONDS", type=SECONDS, default=120.0, show_default=True, help="How long to wait for a running job.")
def savepoint(job: str, to: str, bootstrap: str, timeout: float) -> None:
    """Copy checkpoints and positions of JOB while it stands between two batches: its process does, or this one if it has stopped.

    `moldau stream run FILE --from-savepoint DIR` begins with it, and `moldau stream reprocess FILE --from-savepoint DIR` in new outputs.
    """
    from moldau.model.extras import require

    require("lake", "a savepoint")
    from moldau.streams.operator import StreamOperator

    operator = StreamOperator(bootstrap)
    try:
        report = operator.savepoint(job, os.path.abspath(to), timeout)
    finally:
        operator.close()
    batches = ", ".join(f"{query.name} after batch {query.batch}" for query in report.queries)
    say(f"job {job}: savepoint in {to}: {batches}")
