"""``moldau stream run``: the job of a Python file, or the jobs of a topology."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.exit_codes import DONE
from moldau.cli.interruptions import Interruptions
from moldau.cli.options import TEXT, ExistingPath
from moldau.cli.output import say
from moldau.cli.stream_topology import is_topology, run_topology
from moldau.model.errors import MoldauError
from moldau.model.extras import require

if TYPE_CHECKING:
    from moldau.streams.job import StreamJob


@click.command("run")
@click.argument("file", metavar="FILE|TOPOLOGY", type=ExistingPath(path_type=Path, dir_okay=False))
@click.option("--job", metavar="NAME", type=TEXT, help="Which job, of a file that makes several.")
@click.option("--once", is_flag=True, help="Write what the topics have now, and end.")
@click.option("--fresh", is_flag=True, help="Begin with new checkpoints; outputs get again what they have already.")
@click.option(
    "--from-savepoint", "savepoint", metavar="DIR", type=TEXT, help="Begin with its checkpoints: outputs get what followed again."
)
@click.option("--master", metavar="URL", type=TEXT, help="spark://HOST:PORT of a Spark cluster.  [default: Spark on this host]")
@click.option(
    "--data", "directory", metavar="DIR", type=click.Path(file_okay=False), help="Logs of a topology.  [default: moldau-stream/NAME]"
)
def run(file: Path, job: str | None, once: bool, fresh: bool, savepoint: str | None, master: str | None, directory: str | None) -> None:
    """Run the StreamJob that the Python FILE makes, until Ctrl-C or `moldau stream stop`, at the end of a batch.

    A job that another process runs is refused, and so is one that does not fit its checkpoint. What a job is, what it guarantees and how
    it is written: docs/streams.md. Brokers and registry are those of the file; where it names none, MOLDAU_BOOTSTRAP and MOLDAU_REGISTRY.

    Of a TOPOLOGY (TOML), which is checked before, each job is a process here: one that fails is started again. With --once they run one
    after the other, in the order in which they feed each other (docs/streams-topologies.md).

    \b
      moldau stream run flights_per_hour.py --once
    """
    if fresh and savepoint is not None:
        raise click.UsageError("--fresh and --from-savepoint exclude each other")
    require("lake", "a stream job")
    if is_topology(file):
        for name, given in (
            ("job", job is not None),
            ("fresh", fresh),
            ("from-savepoint", savepoint is not None),
            ("master", master is not None),
        ):
            if given:
                raise click.UsageError(f"--{name} is for the file of a job, not for a topology")
        run_topology(file, directory, once=once)
        return
    if directory is not None:
        raise click.UsageError("--data is for a topology; a job has its directory in its file")
    with Interruptions() as interruptions:
        found = loaded(file, job, master)
        interruptions.on_stop = found.stop
        with failing(found.name):
            found.run(once=once, fresh=fresh, savepoint=savepoint, tell=partial(say, err=True))
        interruptions.done = True
    say(f"job {found.name}: stopped" if interruptions.requested or not once else f"job {found.name}: done")
    click.get_current_context().exit(DONE)


def loaded(file: Path, name: str | None, master: str | None = None) -> "StreamJob":
    """The job of a file; what is wrong with the file as one line."""
    from moldau.lake.session import SessionError, check_master
    from moldau.streams.files import load_job
    from moldau.streams.session import MASTER_VARIABLE

    if master is not None:
        try:
            check_master(master)
        except SessionError as error:
            raise click.UsageError(f"--master: {error}") from error
        os.environ[MASTER_VARIABLE] = master
    return load_job(str(file), name)


@contextmanager
def failing(job: str) -> Iterator[None]:
    """What ends a job, and is no bug, is one line."""
    from moldau.streams.program import FAILURES

    try:
        yield
    except MoldauError:
        raise
    except FAILURES as error:
        raise click.ClickException(f"job {job}: {error}") from error
