"""``moldau mirror status``: how each partition of a mirror stands."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.exit_codes import NO_PROCESS, PARTITION_HALTED, RETRYING
from moldau.cli.mirror_file import as_operator, file_argument, plan_of
from moldau.cli.mirror_status_document import status_document
from moldau.cli.options import timeout_option
from moldau.cli.output import counted, human_bytes, print_json, print_table, say

if TYPE_CHECKING:
    from moldau.mirror.operator import Operator
    from moldau.mirror.state.board import Board

_COLUMNS = ("topic", "partition", "source", "state", "lag", "bytes", "time", "bytes/s", "process", "reason")
_NUMERIC = ("partition", "lag", "bytes", "time", "bytes/s")
_DROP = ("bytes/s", "process", "bytes", "source", "lag")


@click.command("status")
@file_argument
@click.option("--instance", metavar="NAME", help="Only what this process reports.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@timeout_option(10.0)
def status(file: Path, instance: str | None, as_json: bool, timeout: float) -> None:
    """Show the partitions of the mirror of FILE, their states and lags, its processes, and what operators have changed.

    Lag in bytes is estimated by what was fetched lately; lag in time is the age of the newest mirrored record, and 0 without a lag. A lag
    that is not known is shown as "-": the source does not answer, or was not asked yet.

    Exit codes: 0 all is well, or paused by an operator; 6 a partition has halted: it waits for a decision; 7 no process reports, and what
    is shown is what was known last; 9 a partition, a topic or a process has tried the same again for longer than a minute; 1 the target
    does not answer.
    """
    plan = plan_of(file)

    async def read(operator: "Operator") -> tuple["Board", int]:
        return await operator.board(), operator.now_ms

    board, now_ms = as_operator(plan, timeout, read)
    document = status_document(board, board.selection(plan.selection), now_ms, instance)
    if as_json:
        print_json(document)
    else:
        _print(document)
    if not any(each["state"] == "running" for each in document["processes"]):
        click.get_current_context().exit(NO_PROCESS)
    if document["totals"]["halted"]:
        click.get_current_context().exit(PARTITION_HALTED)
    if document["totals"]["retrying_long"]:
        click.get_current_context().exit(RETRYING)


def _print(document: dict[str, Any]) -> None:
    print_table(_COLUMNS, [_cells(each) for each in document["partitions"]], numeric=_NUMERIC, drop=_DROP, under="reason")
    totals = document["totals"]
    whole = f" and {counted(totals['topics'], 'whole topic')}" if totals["topics"] else ""
    retrying = f", {totals['retrying_long']} retrying for more than a minute" if totals["retrying_long"] else ""
    counts = f"{counted(totals['partitions'], 'partition')}{whole}, {totals['halted']} halted{retrying}"
    say(f"{counts}, {_lag(totals)}; {human_bytes(round(totals['bytes_per_s']))}/s")
    for each in document["processes"]:
        ago = f"{each['state']}, reported {each['reported_s_ago']:.0f} s ago"
        trying = f", trying again{_since(each['reason_since_ms'], each['reported_ms'])}: {each['reason']}" if each["reason"] else ""
        say(f"process {each['instance']} ({each['host']}, pid {each['pid']}): {ago}, {counted(each['partitions'], 'partition')}{trying}")
    if not document["processes"]:
        say(f"no process of mirror {document['mirror']} has reported: each does once it reaches the target and a source")
    _print_following(document["groups"], document["configs"])
    for each in document["pauses"]:
        number = "" if each["partition"] is None else f"-{each['partition']}"
        say(f"paused by {each['by']}: {each['topic'] or 'the mirror'}{number}")
    for each in document["changes"]:
        say(
            f"changed at run time: topics {each['action']} {each['pattern']}{', which no topic matches now' if each['topics'] == 0 else ''}"
        )


def _lag(totals: dict[str, Any]) -> str:
    """What is known of it."""
    is_known = totals["lag_records"] is not None
    known = totals if is_known else totals["at_least"]
    text = f"{counted(known['lag_records'], 'record')} behind, about {human_bytes(known['lag_bytes'])}, {_time(known['lag_s'])}"
    if is_known:
        return text
    return "lag not known" if known["lag_s"] is None and not known["lag_records"] else f"at least {text}"


def _since(since_ms: int | None, now_ms: int) -> str:
    return "" if since_ms is None else f" for {_time(max(now_ms - since_ms, 0) / 1000)}"


def _print_following(groups: dict[str, Any] | None, configs: dict[str, Any] | None) -> None:
    """Only what the mirror's file asks for has ever been done, or failed."""
    if groups is not None and (groups["synced_s_ago"] is not None or groups["reason"]):
        busy = f", {groups['with_members_in_target']} with members in the target, which are left alone"
        say(f"offsets of {counted(groups['groups'], 'group')} mirrored {_synced(groups)}{busy}, {groups['failed']} failed")
        for each in groups["failures"]:
            say(f"  {'group ' + each['group'] if each['group'] else 'groups'}: {each['reason']}")
    if configs is not None and (configs["synced_s_ago"] is not None or configs["reason"]):
        say(f"configurations of topics compared {_synced(configs)}, {configs['refused']} refused")
        for each in configs["refusals"]:
            say(f"  topic {each['topic']}, {each['config'] or 'all'}: {each['reason']}")


def _synced(report: dict[str, Any]) -> str:
    ago = "never" if report["synced_s_ago"] is None else f"{_time(report['synced_s_ago'])} ago"
    return f"{ago} by process {report['process']}" + (f", trying again: {report['reason']}" if report["reason"] else "")


def _cells(row: dict[str, Any]) -> list[object]:
    return [
        row["topic"],
        "all" if row["partition"] is None else row["partition"],
        row["source"],
        _state(row),
        "-" if row["lag_records"] is None else f"{row['lag_records']:,}",
        human_bytes(row["lag_bytes"]),
        _time(row["lag_s"]),
        human_bytes(round(row["bytes_per_s"])),
        row["process"],
        row["reason"],
    ]


def _state(row: dict[str, Any]) -> str:
    if not row["is_current"]:
        return f"{row['state']} (not running)"
    return f"{row['state']}{_since(row['since_ms'], row['reported_ms'])}" if row["state"] == "retrying" else str(row["state"])


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
