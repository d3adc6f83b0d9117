"""A job as a program: a Python file that makes a `StreamJob`, run by itself or by spark-submit."""

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import Protocol

from moldau.lake.session import SessionError
from moldau.lake.tables.data_files import FileError
from moldau.lake.tables.format import TableError
from moldau.model.errors import MoldauError

FAILURES = (MoldauError, SessionError, TableError, FileError, ValueError)
"""What a job may end with that is no bug of ours."""


class Runnable(Protocol):
    """A job."""

    name: str

    def run(self, *, once: bool = False, fresh: bool = False) -> None:
        """Until it ends."""

    def stop(self) -> None:
        """Soon; does not wait."""


def main(job: Runnable, arguments: Sequence[str] | None) -> None:
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
