"""``moldau log``: look into the files of a log directory, and accept what is lost of them. No broker is asked."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from moldau.cli.options import ExistingPath
from moldau.cli.output import counted, human_bytes
from moldau.cli.output_records import json_bytes, printable
from moldau.cli.terminal import verdict


@click.group("log")
def log() -> None:
    """Look into the files of a log, without a broker."""


@log.command("dump", short_help="Print what stands in one file of a log.")
@click.argument("file", type=ExistingPath(dir_okay=False))
@click.option("--records", is_flag=True, help="Print the records of each batch too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump(file: str, records: bool, as_json: bool) -> None:
    """Print what stands in FILE: a segment (.log), an index (.index, .timeindex, .txnindex), a producer snapshot (.snapshot), a
    checkpoint, partition.metadata or meta.properties.

    Damage is printed like the rest, with its place; the exit code is then 1.
    """
    from moldau.adapters.posix_files import PosixFiles
    from moldau.log.dump import dump as dump_rows

    damaged = 0
    for row in dump_rows(PosixFiles(), file, records=records):
        damaged += row["row"] == "damage"
        click.echo(json.dumps(_jsonable(row), ensure_ascii=False) if as_json else _row_text(row))
    if damaged:
        raise click.ClickException(f"{file}: {counted(damaged, 'damaged place')}")


@log.command("verify")
@click.argument("directory", type=ExistingPath(file_okay=False))
@click.option("--records", is_flag=True, help="Decompress every batch and walk its records too; slower.")
@click.option("--notes", is_flag=True, help="Show notes too: what the broker repairs itself, and what cannot be checked.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
def verify(directory: str, records: bool, notes: bool, as_json: bool) -> None:
    """Read every file of DIRECTORY and report what is wrong.

    DIRECTORY is a data directory or one partition's folder.

    Checksums of all batches, order of offsets, indexes against segments, checkpoints against logs. The first line is the verdict, OK or
    DAMAGED; then a line for each damaged file: where, and what to do. Exit code 0: sound; 1: damaged, or not to be read; 2: wrong use.
    Stop the broker first, or what it is just writing may look torn.
    """
    from moldau.adapters.posix_files import PosixFiles
    from moldau.log.findings import DamageReport, Severity, advice_for
    from moldau.log.verify import Totals
    from moldau.log.verify import verify as find

    totals, report = Totals(), DamageReport(keep_notes=notes or as_json)
    report.take(find(PosixFiles(), str(Path(directory)), records=records, totals=totals))
    if as_json:
        found = [file.first for file in report.damaged.values()] + report.notes
        counts = {"partitions": totals.partitions, "segments": totals.segments, "batches": totals.batches, "bytes": totals.bytes}
        rows = [
            {"severity": each.severity.value, "path": each.path, "position": each.position, "message": each.message}
            | ({"more": report.damaged[each.path].more, "to_do": advice_for(each.path)} if each.severity is not Severity.NOTE else {})
            for each in found
        ]
        click.echo(json.dumps({"directory": directory, "sound": not report.damaged, "checked": counts, "findings": rows}))
    else:
        checked = f"{counted(totals.partitions, 'partition')}, {counted(totals.segments, 'segment')}, {human_bytes(totals.bytes)} checked"
        text = f"{verdict('DAMAGED', sys.stdout)}: {counted(len(report.damaged), 'file')}; {checked}"
        click.echo(text if report.damaged else f"{verdict('OK', sys.stdout)}: {checked}")
        for line in (*report.damaged.values(), *report.notes):
            click.echo(str(line))
        if report.note_count and not notes:
            click.echo(f"{counted(report.note_count, 'note')}: --notes shows {'it' if report.note_count == 1 else 'them'}")
    if report.damaged:
        click.get_current_context().exit(1)


@log.command("accept-loss", short_help="Let a partition start without its lost records.")
@click.argument("directory", type=ExistingPath(file_okay=False))
@click.argument("partitions", metavar="TOPIC-PARTITION...", nargs=-1, required=True)
def accept_loss(directory: str, partitions: tuple[str, ...]) -> None:
    """Accept that records of partitions in the data directory DIRECTORY are lost.

    A broker keeps a partition offline whose folder is missing, or whose log ends before what was on disk or is damaged there: its log names
    this command. Put the files back from a backup if you have one. If not, this command has the next start open the partition with what is
    left: the records before the damage, or none. Files are cut only then. A partition of which nothing is lost is refused: exit code 2.
    """
    from moldau.adapters.posix_files import PosixFiles
    from moldau.log.accepting import NothingToAcceptError
    from moldau.log.accepting import accept_loss as accept
    from moldau.log.names import FolderKind, parse_folder

    found = []
    for name in partitions:
        folder = parse_folder(name)
        if folder is None or folder.kind is not FolderKind.LOG:
            raise click.UsageError(f"{name!r} is not TOPIC-PARTITION, as in orders-0")
        found.append(folder.topic_partition)
    try:
        accept(PosixFiles(), str(Path(directory)), found)
    except NothingToAcceptError as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"loss accepted for {', '.join(partitions)}: the next start of the broker opens what is left")


def _jsonable(row: dict[str, Any]) -> dict[str, Any]:
    """Bytes as text, or as base64 where they are not UTF-8."""
    shown = {name: json_bytes(value) if isinstance(value, bytes) else value for name, value in row.items()}
    if "headers" in shown:
        shown["headers"] = [[name, json_bytes(value)] for name, value in row["headers"]]
    return shown


def _row_text(row: dict[str, Any]) -> str:
    """``batch position=0 size=78 ...``; records are indented under their batch."""
    indent = "  " if row["row"] == "record" else ""
    return indent + " ".join([row["row"], *(f"{name}={_value_text(value)}" for name, value in _shown_fields(row))])


def _shown_fields(row: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """What is worth a person's attention: flags only where they are set, headers only where there are some."""
    return ((name, value) for name, value in row.items() if name != "row" and value is not False and value != [])


def _value_text(value: object) -> str:
    match value:
        case None | bytes():
            return printable(value).decode()
        case True:
            return "yes"
        case list():
            return ",".join(f"{name}:{_value_text(content)}" for name, content in value)
        case _:
            return str(value)
