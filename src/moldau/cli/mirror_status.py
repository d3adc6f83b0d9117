"""``moldau mirror status``: how each partition of a mirror stands."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.exit_codes import NO_PROCESS, PARTITION_HALTED
from moldau.cli.mirror_file import as_operator, file_argument, plan_of
from moldau.cli.options import timeout_option
from moldau.cli.output import counted, human_bytes, print_json, print_table, say

if TYPE_CHECKING:
    from moldau.mirror.operator import Operator
    from moldau.mirror.state.board import Board
    from moldau.mirror.state.following import Following
    from moldau.mirror.state.view import SeenRow

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

    Lag in bytes is estimated by what was fetched lately; lag in time is the age of the newest mirrored record, and 0 without a lag.

    Exit codes: 0 all is well, or paused by an operator; 6 a partition has halted: it waits for a decision; 7 no process reports, and what
    is shown is what was known last; 1 the target does not answer.
    """
    plan = plan_of(file)

    async def read(operator: "Operator") -> tuple["Board", int]:
        return await operator.board(), operator.now_ms

    board, now_ms = as_operator(plan, timeout, read)
    document = _document(board, now_ms, instance)
    if as_json:
        print_json(document)
    else:
        _print(document)
    if not any(each["state"] == "running" for each in document["processes"]):
        click.get_current_context().exit(NO_PROCESS)
    if document["totals"]["halted"]:
        click.get_current_context().exit(PARTITION_HALTED)


def _document(board: "Board", now_ms: int, instance: str | None) -> dict[str, Any]:
    from moldau.mirror.state.view import is_running, newest_rows

    names = sorted(name for name in board.processes if instance in (None, name))
    seen = newest_rows(board, now_ms, names)
    partitions = [_row(each) for each in seen]
    processes = []
    for name in names:
        process = board.processes[name]
        running = is_running(process, now_ms)
        processes.append(
            {
                "instance": name,
                "state": "running" if running else "ended" if process.ended else "silent",
                "reported_s_ago": max(now_ms - process.at_ms, 0) / 1000,
                "host": process.host,
                "pid": process.pid,
                "started_ms": process.started_ms,
                "partitions": sum(each["process"] == name for each in partitions),
                "transactions": process.transactions,
                "retries": process.retries,
                "reason": process.reason,
            }
        )
    following = board.following
    lags = [each["lag_s"] for each in partitions if each["lag_s"] is not None]
    return {
        "mirror": board.mirror,
        "processes": processes,
        "partitions": partitions,
        "pauses": [
            {"topic": scope.topic, "partition": scope.partition, "by": pause.by, "since_ms": pause.at_ms}
            for scope, pause in board.pauses.items()
        ],
        "groups": None if following is None else _groups(following, now_ms),
        "configs": None if following is None else _configs(following, now_ms),
        "changes": [{"action": each.action.value, "pattern": each.pattern.pattern} for each in board.changes],
        "totals": {
            "partitions": sum(each["partition"] is not None for each in partitions),
            "halted": sum(each.row.state.is_halted for each in seen),
            "lag_records": sum(each["lag_records"] or 0 for each in partitions),
            "lag_bytes": sum(each["lag_bytes"] or 0 for each in partitions),
            "lag_s": max(lags, default=None),
            "bytes_per_s": round(sum(each["bytes_per_s"] for each in partitions), 1),
            "records_per_s": round(sum(each["records_per_s"] for each in partitions), 1),
        },
    }


def _row(seen: "SeenRow") -> dict[str, Any]:
    from moldau.mirror.state.reports import WHOLE_TOPIC

    row, process, is_current = seen
    return {
        "source": row.source,
        "topic": row.topic,
        "partition": None if row.number == WHOLE_TOPIC else row.number,
        "state": row.state.value,
        "reason": row.reason,
        "since_ms": row.since_ms or None,
        "position": row.position,
        "end": row.end,
        "lag_records": row.lag_records,
        "lag_bytes": row.lag_bytes,
        "lag_s": row.lag_s(process.at_ms),
        "bytes_per_s": row.bytes_s if is_current else 0.0,
        "records_per_s": row.records_s if is_current else 0.0,
        "process": process.instance,
        "is_current": is_current,
    }


def _groups(following: "Following", now_ms: int) -> dict[str, Any]:
    return {
        "process": following.instance,
        "synced_s_ago": _ago(following.groups_ms, now_ms),
        "reason": following.groups_reason or None,
        "groups": following.groups,
        "with_members_in_target": following.groups_busy,
        "commits": following.commits,
        "checkpoints": following.checkpoints,
        "failed": following.group_failure_count,
        "failures": [{"group": each.group or None, "reason": each.reason} for each in following.group_failures],
    }


def _configs(following: "Following", now_ms: int) -> dict[str, Any]:
    return {
        "process": following.instance,
        "synced_s_ago": _ago(following.configs_ms, now_ms),
        "reason": following.configs_reason or None,
        "changed": following.configs_changed,
        "refused": following.refused_count,
        "refusals": [{"topic": each.topic, "config": each.config or None, "reason": each.reason} for each in following.refused],
    }


def _ago(at_ms: int, now_ms: int) -> float | None:
    return None if not at_ms else max(now_ms - at_ms, 0) / 1000


def _print(document: dict[str, Any]) -> None:
    print_table(_COLUMNS, [_cells(each) for each in document["partitions"]], numeric=_NUMERIC, drop=_DROP, under="reason")
    totals = document["totals"]
    lag = f"{counted(totals['lag_records'], 'record')} behind, about {human_bytes(totals['lag_bytes'])}, {_time(totals['lag_s'])}"
    say(f"{counted(totals['partitions'], 'partition')}, {totals['halted']} halted, {lag}; {human_bytes(round(totals['bytes_per_s']))}/s")
    for each in document["processes"]:
        ago = f"{each['state']}, reported {each['reported_s_ago']:.0f} s ago"
        trying = f", trying again: {each['reason']}" if each["reason"] else ""
        say(f"process {each['instance']} ({each['host']}, pid {each['pid']}): {ago}, {counted(each['partitions'], 'partition')}{trying}")
    if not document["processes"]:
        say(f"no process of mirror {document['mirror']} has reported")
    _print_following(document["groups"], document["configs"])
    for each in document["pauses"]:
        number = "" if each["partition"] is None else f"-{each['partition']}"
        say(f"paused by {each['by']}: {each['topic'] or 'the mirror'}{number}")
    for each in document["changes"]:
        say(f"changed: topics {each['action']} {each['pattern']}")


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
        row["state"] if row["is_current"] else f"{row['state']} (not running)",
        "-" if row["lag_records"] is None else f"{row['lag_records']:,}",
        human_bytes(row["lag_bytes"]),
        _time(row["lag_s"]),
        human_bytes(round(row["bytes_per_s"])),
        row["process"],
        row["reason"],
    ]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
