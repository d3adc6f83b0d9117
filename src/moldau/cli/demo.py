"""``moldau demo``: the whole pipeline over real events, and the audit's proof that all arrived."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.exit_codes import FAILED, MISSING_OR_DOUBLED
from moldau.cli.options import ExistingPath
from moldau.model.extras import MissingExtraError

if TYPE_CHECKING:
    from moldau.demo.options import DemoOptions
    from moldau.demo.report import DemoReport
    from moldau.demo.run import RunProgress

DIRECTORY = "demo-data"


@click.command("demo")
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help=f"Where all state is.  [default: {DIRECTORY}, and -small, -loss after it with these options]",
)
@click.option(
    "--input",
    "file",
    metavar="FILE",
    type=ExistingPath(path_type=Path, dir_okay=False),
    help="A file of events: .csv with a heading, otherwise JSON lines.  [default: all flights out of New York in 2013]",
)
@click.option("--key", metavar="FIELD", help="Field of the events that is their key.  [default for the flights: tailnum]")
@click.option("--time", metavar="FIELD", help="Field that is their time: ISO 8601 (UTC unless it has a zone) or milliseconds since 1970.")
@click.option("--partitions", type=click.IntRange(1, 1000), default=6, show_default=True, help="Of the topic.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="zstd",
    show_default=True,
    help="Of the topic's batches.",
)
@click.option(
    "--bad-lines",
    type=click.Choice(["stop", "dead-letter"]),
    default="stop",
    show_default=True,
    help="At lines that are no events: stop before anything is published, or carry them into the dead-letter table.",
)
@click.option("--plant-loss", is_flag=True, help="Let a host count one event that it never sends; the audit has to find it: exit code 4.")
@click.option("--small", is_flag=True, help="One cluster in place of three data centres, an aggregate and its copy.")
@click.option(
    "--brokers",
    type=click.IntRange(1, 9),
    help="With --small: of several one is killed while events are published.  [default: as before in this directory, or 3]",
)
@click.option("--cores", type=click.IntRange(1), default=2, show_default=True, help="For Spark.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def demo(
    directory: Path | None,
    file: Path | None,
    key: str | None,
    time: str | None,
    partitions: int,
    compression: str,
    bad_lines: str,
    plant_loss: bool,
    small: bool,
    brokers: int | None,
    cores: int,
    as_json: bool,
) -> None:
    """Run the whole pipeline over real events, and let the audit check that all arrived.

    Three data centres are started by `moldau tiers up` on free ports: a cluster in each, mirrors that merge them into an aggregate of three
    brokers, an offline copy of it, a schema registry, and an auditor of each cluster. A host in each data centre publishes tracked Avro
    events, and a load streams the copy into a Delta table by day; all of them publish their counts. Half way a mirror and a broker are
    killed (SIGKILL), and start again; so is a stream job, which counts departures by airport and hour. The report is the audit's of the
    whole tree, beside an independent check in Spark SQL, with a picture of it. Run it again: nothing is added. Kill it anywhere and run it
    again: the table has every event once.

    With --small all of it is at one cluster.

    Exit codes: 0 everything is complete, 2 wrong use, 4 the audit has found a loss or a duplication, 1 anything else.
    """
    gc.disable()  # hundreds of thousands of counts, which it would look through again and again, and a process of two minutes
    from moldau.cli.demo_view import print_report, progress_view

    try:
        from moldau.demo.file_input import open_input
        from moldau.demo.inputs import InputError
        from moldau.demo.options import DemoError, DemoOptions

        if file is None and (key is not None or time is not None):
            raise click.UsageError("--key and --time go with --input; the flights have theirs")
        if not small and brokers is not None:
            raise click.UsageError("--brokers goes with --small: the topology has seven, of which one is killed")
        if not small and file is not None and time is None:
            raise click.UsageError(
                "--input without --time needs --small: windows of now are decided in the aggregate only when they are over"
            )
        options = DemoOptions(
            directory=directory or default_directory(small=small, plant_loss=plant_loss),
            input=open_input(file, key, time),
            file=file,
            key=key,
            time=time,
            partitions=partitions,
            compression=compression,
            refuse_bad_lines=bad_lines == "stop",
            plant_loss=plant_loss,
            cores=cores,
            small=small,
            brokers=brokers,
        )
        with progress_view(quiet=as_json) as progress:
            report = _run(options, progress)
    except (ModuleNotFoundError, MissingExtraError) as error:
        raise MissingExtraError("the demonstration", error.name or str(error), "demo") from error
    except (DemoError, InputError) as error:
        raise click.ClickException(str(error)) from error
    print_report(report, as_json=as_json)
    if report.audit.alarming:
        raise SystemExit(MISSING_OR_DOUBLED)
    if not report.complete:
        raise SystemExit(FAILED)


def default_directory(*, small: bool, plant_loss: bool) -> Path:
    """Runs that differ in what is started, or what is lost, each have their own."""
    return Path(f"{DIRECTORY}{'-small' if small else ''}{'-loss' if plant_loss else ''}")


def _run(options: "DemoOptions", progress: "RunProgress") -> "DemoReport":
    """The whole demonstration; what only its later steps can raise ends as one line too."""
    from pyspark.errors import PySparkException

    from moldau.client.failures import ClientError
    from moldau.demo.children import ChildError
    from moldau.demo.publish import ForeignRecordError, PublishError
    from moldau.demo.run import run_demo
    from moldau.lake.loading.errors import LoadError
    from moldau.lake.reading.offsets import DataLossError
    from moldau.lake.session import SessionError
    from moldau.lake.tables.data_files import FileError
    from moldau.lake.tables.format import TableError
    from moldau.registry.client import RegistryError

    expected = (
        ChildError, ClientError, DataLossError, FileError, ForeignRecordError, LoadError, PublishError, RegistryError, SessionError,
        TableError,
    )  # fmt: skip
    try:
        return run_demo(options, progress)
    except expected as error:
        raise click.ClickException(str(error)) from error
    except PySparkException as error:
        reason = next((line for line in str(error).splitlines()[::-1] if "Error:" in line), str(error).partition("\n")[0])
        raise click.ClickException(f"Spark failed: {reason.strip()}; more in {options.directory / 'spark' / 'spark.log'}") from error
