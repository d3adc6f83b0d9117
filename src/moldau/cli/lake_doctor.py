"""``moldau lake doctor``: what is wrong with a table or grows, what it costs, and its repair."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.exit_codes import FAILED
from moldau.cli.options import parse_duration_ms
from moldau.cli.output import counted, human_bytes, print_json, say
from moldau.cli.storage_options import storage_option
from moldau.model.extras import MissingExtraError

if TYPE_CHECKING:
    from moldau.lake.doctor.facts import TableFacts
    from moldau.lake.doctor.findings import Finding, Repair


class Retention(click.ParamType[timedelta]):
    """A time with a unit: ``12h``, ``7d``, ``4w``."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The time, or a usage error."""
        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(milliseconds=parse_duration_ms(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a duration such as 12h, 7d, 4w", param, ctx)


@click.command("doctor")
@click.argument("table", metavar="TABLE")
@click.option("--repair", is_flag=True, help="Do what the findings name as their repair, and look again.")
@click.option(
    "--retention",
    metavar="DURATION",
    type=Retention(),
    default="7d",
    show_default=True,
    help="Data files of older versions are kept for so long; an hour at least, and longer than a load or a query takes.",
)
@click.option(
    "--log-retention",
    metavar="DURATION",
    type=Retention(),
    default="30d",
    show_default=True,
    help="Old versions are kept for so long; a day at least.",
)
@click.option(
    "--small-files",
    metavar="N",
    type=click.IntRange(2),
    default=8,
    show_default=True,
    help="So many small files of a day or hour that is over are a finding.",
)
@click.option(
    "--footers",
    metavar="N",
    type=click.IntRange(0),
    default=1_000,
    show_default=True,
    help="Read the footers of so many data files, spread over the table.",
)
@storage_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(table: str, repair: bool, retention: timedelta, log_retention: timedelta, small_files: int, footers: int, as_json: bool) -> None:
    """Look at TABLE, a directory or s3://BUCKET/PREFIX, without Spark and while loads run: missing, damaged and small files, its
    log, and what nothing needs.

    Each finding has what it costs and what helps. Exit code 1 for errors and warnings, with --repair for those that are left; 0 if there
    are only notices, or nothing. docs/lake.md has all checks.

    \b
      moldau lake doctor lake/departures
      moldau lake doctor lake/departures --repair --retention 2d
    """
    try:
        from moldau.lake.doctor.examination import examine
        from moldau.lake.doctor.facts import Limits
        from moldau.lake.doctor.findings import Severity
        from moldau.lake.doctor.repairing import repair as repair_table
        from moldau.lake.doctor.rules import findings
        from moldau.lake.tables.format import TableError
    except ModuleNotFoundError as error:
        raise MissingExtraError("moldau lake doctor", error.name or str(error), "lake") from error
    try:
        limits = Limits(retention=retention, log_retention=log_retention, small_files_min=small_files, footers=footers)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        facts = examine(table, limits)
        found = findings(facts, limits)
        left, repairs = found, None
        if not as_json:
            _show(facts, found)
        if repair:
            repairs = repair_table(table, found, limits)
            if not as_json:
                _show_repairs(repairs)
            left = findings(examine(table, limits), limits) if repairs else found
    except (TableError, OSError) as error:
        raise click.ClickException(str(error)) from error
    wrong = [each for each in left if each.severity is not Severity.NOTICE]
    if as_json:
        print_json(_document(facts, found, repairs, left))
    elif repair and wrong:
        say(f"{counted(len(wrong), 'finding')} left: {', '.join(each.check.value for each in wrong)}")
    if wrong:
        click.get_current_context().exit(FAILED)


def _show(facts: "TableFacts", found: "Sequence[Finding]") -> None:
    log = facts.log
    checkpoint = "" if log.checkpoint is None else f", checkpoint of version {log.checkpoint:,}"
    say(
        f"{facts.path}: {facts.format}, version {facts.version:,}; {counted(facts.files, 'file')}, {human_bytes(facts.bytes)}, "
        f"{counted(facts.partitions, 'partition')}; log: {counted(log.files, 'file')}, {human_bytes(log.bytes)}{checkpoint}"
    )
    for each in found:
        say(f"{each.severity.value}: {each.check.value}: {each.text}")
        say(f"  cost: {each.cost}")
        say(f"  {'repair' if each.repairable else 'what helps'}: {each.remedy}")
    if not found:
        say("nothing found")


def _show_repairs(repairs: "Sequence[Repair]") -> None:
    for each in repairs:
        say(f"{'repaired' if each.done else 'not repaired'}: {each.check.value}: {each.text}")
    if not repairs:
        say("nothing to repair")


def _document(
    facts: "TableFacts", found: "Sequence[Finding]", repairs: "Sequence[Repair] | None", left: "Sequence[Finding]"
) -> Mapping[str, Any]:
    from moldau.lake.doctor.rules import summary

    document: dict[str, Any] = {**summary(facts), "findings": [_finding(each) for each in found]}
    if repairs is not None:
        document["repairs"] = [{"check": each.check.value, "done": each.done, "text": each.text} for each in repairs]
        document["left"] = [_finding(each) for each in left]
    return document


def _finding(finding: "Finding") -> dict[str, Any]:
    return {
        "severity": finding.severity.value,
        "check": finding.check.value,
        "text": finding.text,
        "cost": finding.cost,
        "remedy": finding.remedy,
        "repairable": finding.repairable,
        "count": finding.count,
        "bytes": finding.bytes,
    }
