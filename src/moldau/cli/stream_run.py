"""``moldau stream run``: the job of a Python file."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.exit_codes import DONE
from moldau.cli.interruptions import Interruptions
from moldau.cli.options import TEXT, ExistingPath
from moldau.cli.output import say
from moldau.model.errors import MoldauError
from moldau.model.extras import require

if TYPE_CHECKING:
    from moldau.streams.job import StreamJob


@click.command("run")
@click.argument("file", metavar="FILE", type=ExistingPath(path_type=Path, dir_okay=False))
@click.option("--job", metavar="NAME", type=TEXT, help="Which job, of a file that makes several.")
@click.option("--once", is_flag=True, help="Write what the topics have now, and end.")
@click.option("--fresh", is_flag=True, help="Begin with new checkpoints; outputs get again what they have already.")
@click.option(
    "--from-savepoint", "savepoint", metavar="DIR", type=TEXT, help="Begin with its checkpoints: outputs get what followed again."
)
def run(file: Path, job: str | None, once: bool, fresh: bool, savepoint: str | None) -> None:
    """Run the StreamJob that the Python FILE makes, until Ctrl-C or `moldau stream stop`, at the end of a batch.

    A job that another process runs is refused, and so is one that does not fit its checkpoint. What a job is, what it guarantees and how
    it is written: docs/streams.md. Brokers and registry are those of the file; where it names none, MOLDAU_BOOTSTRAP and MOLDAU_REGISTRY.

    \b
      moldau stream run flights_per_hour.py --once
    """
    if fresh and savepoint is not None:
        raise click.UsageError("--fresh and --from-savepoint exclude each other")
    require("lake", "a stream job")
    with Interruptions() as interruptions:
        found = loaded(file, job)
        interruptions.on_stop = found.stop
        finished(found, lambda: found.run(once=once, fresh=fresh, savepoint=savepoint))
        interruptions.done = True
    say(f"job {found.name}: stopped" if interruptions.requested or not once else f"job {found.name}: done")
    click.get_current_context().exit(DONE)


def loaded(file: Path, name: str | None) -> "StreamJob":
    """The job of a file; what is wrong with the file as one line."""
    from moldau.streams.files import load_job

    try:
        return load_job(str(file), name)
    except (MoldauError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(file)]
        line = f":{frames[-1].lineno}" if frames else ""
        raise click.ClickException(f"{file}{line}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error


def finished(job: "StreamJob", run: Callable[[], object]) -> None:
    """Run it; what fails is one line."""
    from moldau.streams.program import FAILURES

    try:
        run()
    except MoldauError:
        raise
    except FAILURES as error:
        raise click.ClickException(f"job {job.name}: {error}") from error
