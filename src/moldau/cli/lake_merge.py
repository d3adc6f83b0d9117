"""``moldau lake merge``: the newest row of each key of a table that loads append to."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from moldau.cli.options import TEXT
from moldau.cli.output import counted, print_json, say
from moldau.cli.storage_options import TablePath, storage_option
from moldau.model.extras import MissingExtraError


@click.command("merge")
@click.argument("appended", type=TablePath())
@click.argument("merged", type=click.Path(file_okay=False))
@click.option("--key", "keys", metavar="COLUMN", type=TEXT, multiple=True, help="A key column, as often as needed. Only for a new table.")
@click.option("--order", metavar="log|time:COLUMN", type=TEXT, default="log", show_default=True, help="Which row is the newest.")
@click.option("--deletes", metavar="RULE", type=TEXT, help="Rows that delete their key: tombstones, COLUMN, COLUMN=VALUE, COLUMN is null.")
@click.option(
    "--horizon", metavar="DAYS", type=click.FloatRange(0), help="How long deletions stay marked in the order of a time.  [default: 7]"
)
@click.option("--buckets", metavar="N", type=click.IntRange(1, 4096), help="Files of the table.  [default: by the size of APPENDED]")
@click.option("--table-format", type=click.Choice(["delta", "parquet"]), help="Of a new table.  [default: that of APPENDED]")
@click.option(
    "--keep", metavar="HOURS", type=click.FloatRange(0), default=3.0, show_default=True, help="For readers, of files that were replaced."
)
@click.option("--remake", is_flag=True, help="Make the table again from all rows, with other options if there are any.")
@storage_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def merge(appended: str, merged: str, as_json: bool, horizon: float | None, keep: float, **options: Any) -> None:
    """Bring MERGED, a table with one row for each key, forward to the newest version of APPENDED, a table that a load has made.

    It is made if it is missing, and then needs --key. Afterwards it keeps its options. Needs no Spark.

    \b
      moldau lake merge lake/clicks lake/merged/clicks --key member --deletes op=d
      moldau lake merge lake/clicks lake/merged/clicks
    """
    if not options["keys"] and (options["order"] != "log" or options["deletes"] is not None or options["buckets"] is not None):
        raise click.UsageError("--order, --deletes and --buckets are for a table that is made, or made again: give its --key too")
    try:
        from moldau.lake.merging.merge import merge_table
        from moldau.lake.tables.data_files import FileError
        from moldau.lake.tables.format import TableError
    except ModuleNotFoundError as error:
        raise MissingExtraError("a merge", error.name or str(error), "lake") from error
    try:
        days = None if horizon is None else timedelta(days=horizon)
        done = merge_table(appended, merged, horizon=days, keep=timedelta(hours=keep), **options)
    except (TableError, FileError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(asdict(done))
        return
    if not done.changed:
        say(f"{merged}: nothing new since version {done.appended_version} of {appended}")
        return
    made = "made from" if done.whole else "merged"
    left_out = f", {counted(done.rows_without_key, 'row')} without a key" if done.rows_without_key else ""
    say(
        f"{merged}: {made} {counted(done.rows_read, 'row')}{left_out}; {counted(done.rows, 'row')}, version {done.version}, "
        f"{counted(done.buckets, 'bucket')} written, in {done.seconds:.1f} s"
    )
