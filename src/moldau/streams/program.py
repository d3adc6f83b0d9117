"""A job as a program: a Python file that makes a `StreamJob`, run by itself, by spark-submit or by ``moldau stream run``."""

import argparse
import runpy
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.lake.session import SessionError
from moldau.lake.tables.data_files import FileError
from moldau.lake.tables.format import TableError
from moldau.model.errors import MoldauError
from moldau.streams.errors import StreamError

if TYPE_CHECKING:
    from moldau.streams.job import StreamJob

RUN_NAME = "moldau_stream"
"""`__name__` of a file that ``moldau stream run`` runs: it makes its job, and does not run it."""
FAILURES = (MoldauError, SessionError, TableError, FileError, ValueError)
"""What a job may end with that is no bug of ours."""


def main(job: "StreamJob", arguments: Sequence[str] | None) -> None:
    """Run the job until it ends, or until SIGINT or SIGTERM; a second signal ends the process at once."""
    parser = argparse.ArgumentParser(description=f"Run the stream job {job.name}.")
    parser.add_argument("--once", action="store_true", help="write what there is now, and end")
    parser.add_argument("--fresh", action="store_true", help="begin with new checkpoints; outputs get again what they have")
    given = parser.parse_args(arguments)

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        job.stop()

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, handle)
    try:
        job.run(once=given.once, fresh=given.fresh)
    except FAILURES as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(1)


def load_job(path: str, name: str | None = None) -> "StreamJob":
    """The job that a file makes; with several the one of this name. StreamError, and whatever the file raises."""
    from moldau.streams.job import StreamJob

    made = runpy.run_path(path, run_name=RUN_NAME)
    jobs = list({id(each): each for each in made.values() if isinstance(each, StreamJob)}.values())
    if name is not None:
        jobs = [each for each in jobs if each.name == name]
    if not jobs:
        raise StreamError(f"{path}: makes no StreamJob" + (f" of the name {name}" if name else " that a variable of the file has"))
    if len(jobs) > 1:
        raise StreamError(f"{path}: makes the jobs {', '.join(each.name for each in jobs)}: name one with --job")
    return jobs[0]
