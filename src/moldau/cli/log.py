"""``moldau log``: look into the files of a log directory, and accept what is lost of them. No broker is asked."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from moldau.cli.output import counted, human_bytes
from moldau.cli.output_records import json_bytes, printable


@click.group("log")
def log() -> None:
    """Look into the files of a log, without a broker."""


@log.command("dump", short_help="Print what stands in one file of a log.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
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
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--records", is_flag=True, help="Decompress every batch and walk its records too; slower.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
def verify(directory: str, records: bool, as_json: bool) -> None:
    """Read every file of DIRECTORY and say what is wrong.

    DIRECTORY is a data directory or one partition's folder.

    Checksums of all batches, order of offsets, indexes against segments, checkpoints against logs. Exit code 1 for damage or gaps; notes
    about what the broker mends by itself do not count. Stop the broker first, or what it is just writing may look torn.
    """
    from moldau.adapters.posix_files import PosixFiles
    from moldau.log.findings import Severity
    from moldau.log.verify import Totals
    from moldau.log.verify import verify as find

    totals, serious, findings = Totals(), 0, []
    for finding in find(PosixFiles(), str(Path(directory)), records=records, totals=totals):
        serious += finding.severity is not Severity.NOTE
        if as_json:
            place = {"severity": finding.severity.value, "path": finding.path, "position": finding.position}
            findings.append(place | {"message": finding.message})
        else:
            click.echo(str(finding))
    if as_json:
        counts = {"partitions": totals.partitions, "segments": totals.segments, "batches": totals.batches, "bytes": totals.bytes}
        click.echo(json.dumps({"directory": directory, "sound": not serious, "checked": counts, "findings": findings}))
    else:
        checked = f"{counted(totals.partitions, 'partition')}, {counted(totals.segments, 'segment')}, {human_bytes(totals.bytes)}"
        click.echo(f"checked {checked}: {counted(serious, 'fault') if serious else 'sound'}")
    if serious:
        click.get_current_context().exit(1)


@log.command("accept-loss", short_help="Let a partition start without the records that are gone.")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.argument("partitions", metavar="TOPIC-PARTITION...", nargs=-1, required=True)
def accept_loss(directory: str, partitions: tuple[str, ...]) -> None:
    """Accept that records of partitions in the data directory DIRECTORY are gone.

    A broker keeps a partition offline whose folder is gone, whose log ends before what was on disk, or is damaged there: its log names this
    command. Put the files back from a backup if you have one. If not, this command has the next start open the partition with what is
    left: the records before the damage, or none. Files are cut only then.
    """
    from moldau.adapters.posix_files import PosixFiles
    from moldau.log.accepting import NothingToAcceptError
    from moldau.log.accepting import accept_loss as accept
    from moldau.log.folders import FolderKind, parse_folder

    found = []
    for name in partitions:
        folder = parse_folder(name)
        if folder is None or folder.kind is not FolderKind.LOG:
            raise click.UsageError(f"{name!r} is not TOPIC-PARTITION, as in orders-0")
        found.append(folder.topic_partition)
    try:
        accept(PosixFiles(), str(Path(directory)), found)
    except NothingToAcceptError as error:
        raise click.ClickException(str(error)) from error
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
    return indent + " ".join([row["row"], *(f"{name}={_value_text(value)}" for name, value in _told(row))])


def _told(row: dict[str, Any]) -> Iterable[tuple[str, Any]]:
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
