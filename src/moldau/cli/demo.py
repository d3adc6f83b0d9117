"""``moldau demo``: real events from a file, through the log, into a lake table, and the proof that all are there."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from moldau.lake.demo.inputs import EventInput
    from moldau.lake.demo.report import Report
    from moldau.lake.demo.run import DemoOptions, Progress

INCOMPLETE = 1


@click.command("demo")
@click.option(
    "--dir", "directory", metavar="DIR", type=click.Path(path_type=Path), default="demo-data", show_default=True, help="Where all state is."
)
@click.option(
    "--input",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file of events: .csv with a heading, otherwise JSON lines.  [default: all flights out of New York in 2013]",
)
@click.option("--key", metavar="FIELD", help="Field of the events that is their key.  [default for the flights: tailnum]")
@click.option(
    "--time", metavar="FIELD", help="Field that is their time: ISO 8601 (UTC unless it says otherwise) or milliseconds since 1970."
)
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
@click.option("--cores", type=click.IntRange(1), default=2, show_default=True, help="For Spark.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def demo(
    directory: Path,
    file: Path | None,
    key: str | None,
    time: str | None,
    partitions: int,
    compression: str,
    bad_lines: str,
    cores: int,
    as_json: bool,
) -> None:
    """Carry real events from a file through the log into a lake table, and prove that all are there.

    A broker is started on a free port, events are published keyed, Spark loads them through our own data source into a Delta table
    partitioned by day, two questions are asked of it, and everything is counted. Run it again: nothing is added. Kill it anywhere and run
    it again: the report is the same. Exit code 1: something is missing, doubled or changed.
    """
    from moldau.cli.demo_view import print_report, progress_view

    try:
        from moldau.lake.demo.inputs import InputError
        from moldau.lake.demo.run import DemoError, DemoOptions

        source = _input(file, key, time)
        options = DemoOptions(
            directory=directory,
            input=source,
            partitions=partitions,
            compression=compression,
            refuse_bad_lines=bad_lines == "stop",
            description=(("input", str(file.resolve()) if file else None), ("key", key), ("time", time)),
            cores=cores,
        )
        with progress_view(quiet=as_json) as progress:
            report = _run(options, progress)
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is not installed; the demonstration needs: pip install 'moldau[demo]'") from error
    except (DemoError, InputError) as error:
        raise click.ClickException(str(error)) from error
    print_report(report, as_json=as_json)
    if not report.complete:
        raise SystemExit(INCOMPLETE)


def _input(file: Path | None, key: str | None, time: str | None) -> "EventInput":
    if file is None:
        from moldau.lake.demo.flights import FlightsInput

        if key is not None or time is not None:
            raise click.UsageError("--key and --time go with --input; the flights have theirs")
        return FlightsInput()
    from moldau.lake.demo.csv_input import CsvInput
    from moldau.lake.demo.json_input import JsonLinesInput

    return (CsvInput if file.suffix.lower() == ".csv" else JsonLinesInput)(file, key, time)


def _run(options: "DemoOptions", progress: "Progress") -> "Report":
    """The whole demonstration; what only its later steps can raise ends as one line too."""
    from pyspark.errors import PySparkException

    from moldau.lake.demo.broker_process import BrokerStartError
    from moldau.lake.demo.publish import PublishError
    from moldau.lake.demo.run import run_demo
    from moldau.lake.offsets import DataLossError
    from moldau.lake.table import LoadConflictError, TableMismatchError

    try:
        return run_demo(options, progress)
    except (BrokerStartError, PublishError, DataLossError, LoadConflictError, TableMismatchError) as error:
        raise click.ClickException(str(error)) from error
    except PySparkException as error:
        reason = next((line for line in str(error).splitlines()[::-1] if "Error:" in line), str(error).partition("\n")[0])
        raise click.ClickException(f"Spark failed: {reason.strip()}; more in {options.directory / 'spark' / 'spark.log'}") from error
