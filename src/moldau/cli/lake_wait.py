"""``moldau lake wait``: until a table is complete up to a time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from moldau.cli.exit_codes import UNDECIDED
from moldau.cli.options import SECONDS, TIME
from moldau.cli.output import print_json, say
from moldau.cli.storage_options import storage_option
from moldau.model.extras import MissingExtraError


@click.command("wait")
@click.argument("table", metavar="TABLE")
@click.option("--until", metavar="TIME", type=TIME, required=True, help="Up to when: 2013-07-02, 2013-07-02T10:00Z, 1h (an hour ago).")
@click.option("--timeout", metavar="SECONDS", type=SECONDS, default=600.0, show_default=True, help="Wait so long at most: 90, 5m, 1h.")
@storage_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def wait(table: str, until: int, timeout: float, as_json: bool) -> None:
    """Wait until every event before TIME that any producer has sent is in TABLE, a directory or s3://BUCKET/PREFIX, or in its dead letters.

    That is decided by the audit, and `moldau load` keeps it in the table; docs/audit.md has how. The table need not exist yet. Exit codes:
    0 it is complete up to then, 3 it is not after --timeout, 1 it cannot be read.

    \b
      moldau lake wait lake/departures --until 2013-07-02 && python report.py
    """
    try:
        from moldau.lake.table import IncompleteTableError, wait_until_complete
        from moldau.lake.tables.format import TableError
        from moldau.lake.tables.opening import check_place, log_folder
    except ModuleNotFoundError as error:
        raise MissingExtraError("moldau lake wait", error.name or str(error), "lake") from error
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=until)
    try:
        check_place(table)
        if log_folder(table) is None:
            say(f"{table}: there is no table yet: waiting for one", err=True)
        watermark = wait_until_complete(table, moment, timeout)
    except IncompleteTableError as error:
        if as_json:
            print_json(_document(table, moment, error.watermark, complete=False))
        say(f"Error: {error}", err=True)
        click.get_current_context().exit(UNDECIDED)
    except (TableError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(_document(table, moment, watermark, complete=True))
    else:
        say(f"{table}: complete up to {_text(watermark)}")


def _document(table: str, until: datetime, watermark: datetime | None, *, complete: bool) -> dict[str, Any]:
    return {"table": table, "until": _text(until), "complete": complete, "watermark": None if watermark is None else _text(watermark)}


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
