"""``moldau load``: topics into tables, each event once."""

import re
import sys
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from moldau.cli.exit_codes import DEAD_LETTERS, DONE, FAILED
from moldau.cli.interruptions import Interruptions
from moldau.cli.load_view import LoadProgress
from moldau.cli.options import (
    SECONDS,
    TEXT,
    ExistingPath,
    bootstrap_option,
    check_registry_url,
    naming_source,
    registry_option,
    registry_source,
)
from moldau.cli.output import counted, say
from moldau.cli.storage_options import storage_option
from moldau.model.extras import MissingExtraError

if TYPE_CHECKING:
    from moldau.lake.loading.job import LoadJob, LoadJobs
    from moldau.lake.loading.service import LoadOutcome, LoadService
    from moldau.lake.session import LazySpark


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `number` of each topic and load, or `percent` of its records."""

    text: str
    number: int | None
    percent: float | None

    def exceeded_by(self, dead_letters: int, records: int) -> bool:
        """Whether `dead_letters` of `records` are too many."""
        if self.number is not None:
            return dead_letters > self.number
        assert self.percent is not None
        return dead_letters * 100 > self.percent * records


class LimitType(click.ParamType[Limit]):
    """``100``, ``1%``, ``0.5%``."""

    name = "N|N%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Limit:
        """A limit."""
        if isinstance(value, Limit):
            return value
        found = re.fullmatch(r"(?:(\d{1,18})|(\d{1,3}(?:\.\d{1,6})?)%)", str(value).strip())
        if found is None or float(found[2] or 0) > 100:
            self.fail(f"{value!r} is neither a number nor a percentage from 0% to 100%", param, ctx)
        return Limit(str(value).strip(), None if found[1] is None else int(found[1]), None if found[2] is None else float(found[2]))


FOLLOW_S = 1.0
TASK_TRIES = 4


@click.command("load")
@click.argument("file", metavar="[FILE]", required=False, type=ExistingPath(path_type=Path, dir_okay=False))
@bootstrap_option
@registry_option("The schema registry of Avro events.")
@click.option("--topics", metavar="A,B", type=TEXT, help="Topics to load, separated by commas.")
@click.option("--pattern", metavar="REGEX", type=TEXT, help="Load all topics whose whole name matches; new ones are found as they come.")
@click.option(
    "--to", metavar="DIR", type=click.Path(file_okay=False), help="Where the tables are: DIR/TOPIC; a directory, or s3://BUCKET/PREFIX."
)
@click.option("--name", metavar="NAME", type=TEXT, help="The job's name; the tables keep their offsets under it.")
@click.option("--partition", type=click.Choice(["day", "hour"]), help="Of the tables, by the events' time in UTC.  [default: day]")
@click.option("--table-format", type=click.Choice(["delta", "parquet"]), help="parquet: with a manifest of its own.  [default: delta]")
@click.option("--tier", metavar="NAME", type=TEXT, help="Under which the counts go to the audit.  [default: lake]")
@click.option(
    "--on-incompatible", type=click.Choice(["stop", "dead-letters"]), help="At events that the table cannot follow.  [default: stop]"
)
@click.option("--key", "keys", metavar="COLUMN", type=TEXT, multiple=True, help="Of merged tables, as often as needed; _key: the record's.")
@click.option("--merged", metavar="DIR", type=click.Path(file_okay=False), help="Keep the newest row of each key in tables DIR/TOPIC.")
@click.option("--merge-order", metavar="log|time:COLUMN", type=TEXT, help="Which row is the newest.  [default: log]")
@click.option("--deletes", metavar="RULE", type=TEXT, help="Rows that delete their key: tombstones, COLUMN, COLUMN=VALUE, COLUMN is null.")
@click.option("--records-max", metavar="N", type=click.IntRange(1), help="Offsets in one commit, at most.  [default: 10,000,000]")
@click.option("--once", is_flag=True, help="Load what there is now, and end. The default.")
@click.option("--follow", is_flag=True, help="Run until stopped, at least a second between two rounds.")
@click.option("--every", metavar="SECONDS", type=SECONDS, help="Run until stopped, a round in each interval: 90, 5m, 1h.")
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    help="At records that no longer exist: stop (default), or load what is left.",
)
@click.option(
    "--max-dead-letters",
    type=LimitType(),
    default="1%",
    show_default=True,
    help="If more of a topic's records are dead letters, report it, and with --once end with exit code 5. The load is committed.",
)
@storage_option
@click.option("--compact", is_flag=True, help="Put the small files of days or hours that are over together.")
@click.option("--master", metavar="URL", type=TEXT, help="spark://HOST:PORT of a Spark cluster.  [default: Spark on this host]")
@click.option("--cores", type=click.IntRange(1, 256), default=2, show_default=True, help="For Spark; of a cluster, of all its workers.")
@click.option("--memory", metavar="SIZE", type=TEXT, default="1g", show_default=True, help="For each Java process of Spark.")
@click.option(
    "--work-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Spark's own files and its log.  [default: a temporary one]",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each topic and round.")
@click.pass_context
def load_command(ctx: click.Context, /, file: Path | None, **given: Any) -> None:
    """Load topics into tables below a directory: each event once, with its offset, wherever the load is interrupted.

    Events are Avro with schemas in a registry; a job FILE (TOML) can declare that a topic has JSON events, and their columns. Options
    override FILE, FILE overrides variables and defaults. Tables, dead letters, offsets and guarantees: docs/load.md. Exit
    codes: 1 a topic could not be loaded, 5 more dead letters than --max-dead-letters.

    \b
      moldau load --registry http://127.0.0.1:8081 --topics departures --to lake --name warehouse
      moldau load warehouse.toml --every 5m --compact
    """
    if sum((given["once"], given["follow"], given["every"] is not None)) > 1:
        raise click.UsageError("--once, --follow and --every exclude each other")
    with Interruptions() as interruptions:
        try:
            code = _load(ctx, file, given, interruptions)
        except KeyboardInterrupt:
            if _interval_s(given) is None:
                raise
            say("stopped before anything was loaded", err=True)
            code = DONE
        interruptions.done = True
    ctx.exit(code)


def _load(ctx: click.Context, file: Path | None, given: dict[str, Any], interruptions: Interruptions) -> int:
    """The exit code."""
    try:
        jobs = _jobs(ctx, file, given)
        source = registry_source(ctx) if jobs.registry == given["registry"] else str(file)
        if jobs.registry is not None:
            check_registry_url(jobs.registry, source)
        if any("registry" in each for each in jobs.settings.values()):
            source = f"{source} or {file}"
        with naming_source(source):
            return _run(jobs, given, interruptions)
    except (ModuleNotFoundError, MissingExtraError) as error:
        raise MissingExtraError("a load", error.name or str(error), "lake") from error


def _jobs(ctx: click.Context, file: Path | None, given: dict[str, Any]) -> "LoadJobs":
    from moldau.lake.loading.job import load_jobs, read_job_file

    names = (
        "bootstrap",
        "registry",
        "topics",
        "pattern",
        "to",
        "name",
        "partition",
        "table_format",
        "tier",
        "on_incompatible",
        "records_max",
        "keys",
        "merged",
        "merge_order",
        "deletes",
    )
    options = {name: given[name] for name in names}
    options["keys"] = list(given["keys"]) or None
    if options["topics"] is not None:
        options["topics"] = [topic.strip() for topic in options["topics"].split(",") if topic.strip()]
    here = {name: value for name, value in options.items() if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    try:
        if file is not None:
            return read_job_file(file, here, otherwise=options)
        return load_jobs({name: value for name, value in options.items() if value is not None})
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _run(jobs: "LoadJobs", given: dict[str, Any], interruptions: Interruptions) -> int:
    """The exit code. Spark is started when there is something to load; its directory stays if it did not start, for its log is there."""
    from moldau.lake.loading.checks import check_jobs, check_work_directory
    from moldau.lake.loading.errors import LoadError
    from moldau.lake.session import LazySpark, SessionError, check_master, check_memory, check_spark, start_tasks

    for option, check in (("memory", check_memory), ("master", check_master)):
        try:
            if given[option] is not None:
                check(given[option])
        except SessionError as error:
            raise click.UsageError(f"--{option}: {error}") from error
    try:
        check_spark(given["memory"])
        check_work_directory(given["work_dir"] and str(given["work_dir"]))
        loads = check_jobs(jobs)
    except (SessionError, LoadError) as error:
        raise click.ClickException(str(error)) from error
    waiting = _print_waiting(jobs, loads, once=_interval_s(given) is None)
    start = partial(
        start_tasks,
        f"moldau load {jobs.name}",
        master=given["master"],
        cores=given["cores"],
        memory=given["memory"],
        task_tries=TASK_TRIES,
    )
    work_dir = None if given["work_dir"] is None else str(given["work_dir"])
    spark = LazySpark(lambda processes: start(directory=processes.directory, processes=processes), work_dir, prefix="moldau-load-")
    progress = LoadProgress(lambda: "starting Spark" if spark.is_starting else f"loading{waiting}" if spark.is_running else "")
    interruptions.at_once = spark.close
    try:
        with progress.shown():
            return _rounds(spark, jobs, given, interruptions, progress)
    finally:
        spark.close()


def _print_waiting(jobs: "LoadJobs", loads: "list[LoadJob]", *, once: bool) -> str:
    """How much is to be loaded, for a user who waits: Spark takes seconds to start, and the first load as long as it takes."""
    from moldau.lake.loading.checks import records_waiting

    if not loads and once:
        raise click.ClickException(f"no topic matches {jobs.pattern!r}, so there was nothing to load")
    if not loads:
        say(f"no topic matches {jobs.pattern!r} yet: waiting for one", err=True)
    elif once and sys.stderr.isatty():
        waiting = counted(records_waiting(jobs, loads), "record")
        click.echo(f"{counted(len(loads), 'topic')}, {waiting} to load", err=True)
        return f" {waiting}"
    return ""


def _interval_s(given: dict[str, Any]) -> float | None:
    """Between two rounds; None for one round."""
    every: float | None = given["every"]
    return every if every is not None else FOLLOW_S if given["follow"] else None


def _rounds(spark: "LazySpark", jobs: "LoadJobs", given: dict[str, Any], interruptions: Interruptions, progress: LoadProgress) -> int:
    """The exit code: whether a topic could not be loaded, or has too many dead letters. KeyboardInterrupt for a service that was stopped
    before it had loaded anything of what there was."""
    from moldau.cli.load_view import show_outcome
    from moldau.lake.loading.errors import LoadError
    from moldau.lake.loading.service import LoadService
    from moldau.lake.reading.offsets import DataLossError
    from moldau.lake.session import SessionError
    from moldau.lake.tables.data_files import FileError
    from moldau.lake.tables.format import TableError

    limit: Limit = given["max_dead_letters"]
    loaded = threading.Event()

    def too_many(outcome: "LoadOutcome") -> bool:
        return limit.exceeded_by(outcome.dead_letters, outcome.rows + outcome.dead_letters)

    def show(outcome: "LoadOutcome") -> None:
        if outcome.changed:
            loaded.set()
        if interruptions.requested and outcome.error is not None:
            return  # Spark was taken away from it
        with progress.away():
            show_outcome(outcome, as_json=given["as_json"])
            if too_many(outcome):
                dead = counted(outcome.dead_letters, "dead letter")
                what = f"{dead} of {counted(outcome.rows + outcome.dead_letters, 'record')} in {outcome.job.dead_letters}"
                say(f"{outcome.job.topic}: {what}: more than --max-dead-letters {limit.text}", err=True)

    service = LoadService(
        spark, jobs, fail_on_data_loss=given["fail_on_data_loss"], compact=given["compact"], on_outcome=show, parallel=given["cores"]
    )
    interval_s = _interval_s(given)
    interruptions.on_stop = partial(_stop, service, spark, once=interval_s is None)
    try:
        if interval_s is not None:
            service.run(interval_s)
            return _stopped(spark, loaded)
        outcomes = service.run_once()
        for each in outcomes:
            if each.error is None and not each.changed:
                show(each)
        if any(each.error is not None for each in outcomes):
            return FAILED
        return DEAD_LETTERS if any(map(too_many, outcomes)) else DONE
    except (LoadError, TableError, FileError, DataLossError, SessionError, OSError) as error:
        if not interruptions.requested:
            raise click.ClickException(str(error)) from error
        if interval_s is None:
            raise KeyboardInterrupt from error
        return _stopped(spark, loaded)


def _stopped(spark: "LazySpark", loaded: threading.Event) -> int:
    """The exit code of a service. KeyboardInterrupt if there was something to load, and nothing of it is."""
    if spark.was_needed and not loaded.is_set():
        raise KeyboardInterrupt
    return DONE


def _stop(service: "LoadService", spark: "LazySpark", *, once: bool) -> None:
    """One round is interrupted, unless all of it is loaded: then it ends as if nothing had come. A service ends after the loads that are
    under way, which have not begun while Spark is starting.
    """
    service.stop()
    if once and service.round_is_loaded:
        return
    if once or spark.is_starting:
        spark.end_soon()
    if once:
        raise KeyboardInterrupt
