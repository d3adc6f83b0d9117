"""The status of a mirror as one JSON document, from which its table is printed too."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.mirror.selection import Change, TopicSelection
    from moldau.mirror.state.board import Board
    from moldau.mirror.state.following import Following
    from moldau.mirror.state.view import SeenRow


def status_document(board: "Board", selection: "TopicSelection", now_ms: int, instance: str | None) -> dict[str, Any]:
    """What the mirror's processes have reported, those of `instance` alone where it is given, and what operators have changed."""
    from moldau.mirror.state.view import is_running, newest_rows, retries_long

    names = sorted(name for name in board.processes if instance in (None, name))
    seen = [each for each in newest_rows(board, now_ms, names) if selection.selects(each.row.topic)]
    partitions = [_row(each) for each in seen]
    processes = []
    for name in names:
        process = board.processes[name]
        running = is_running(process, now_ms)
        processes.append(
            {
                "instance": name,
                "state": "running" if running else "ended" if process.ended else "silent",
                "reported_ms": process.at_ms,
                "reported_s_ago": max(now_ms - process.at_ms, 0) / 1000,
                "host": process.host,
                "pid": process.pid,
                "started_ms": process.started_ms,
                "partitions": sum(each["process"] == name and each["partition"] is not None for each in partitions),
                "transactions": process.transactions,
                "retries": process.retries,
                "reason": process.reason,
                "reason_since_ms": process.reason_since_ms or None,
            }
        )
    following = board.following
    alive = [board.processes[each["instance"]] for each in processes if each["state"] == "running"]
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
        "changes": [_change(each, seen if alive else []) for each in board.changes],
        "totals": {
            "partitions": sum(each["partition"] is not None for each in partitions),
            "topics": sum(each["partition"] is None for each in partitions),
            "halted": sum(each.row.state.is_halted for each in seen),
            "retrying_long": sum(each.retries_long for each in seen if each.is_current) + sum(map(retries_long, alive)),
            **_lags(seen, is_whole=bool(alive) and not any(each.reason for each in alive)),
            "bytes_per_s": round(sum(each["bytes_per_s"] for each in partitions), 1),
            "records_per_s": round(sum(each["records_per_s"] for each in partitions), 1),
        },
    }


def _lags(seen: "Sequence[SeenRow]", *, is_whole: bool) -> dict[str, Any]:
    """The lag of all: None where it is not known; what is known of it is `at_least`. `is_whole`: no process lacks a part of it."""
    from moldau.mirror.state.reports import State

    lagging = [each for each in seen if each.row.state not in (State.DELETED, State.PROMOTED)]
    records = [row.lag_records for row, *_ in lagging]
    sizes = [row.lag_bytes for row, *_ in lagging]
    times = [row.lag_s(process.at_ms) for row, process, _ in lagging]
    known = {
        "lag_records": sum(each or 0 for each in records),
        "lag_bytes": sum(each or 0 for each in sizes),
        "lag_s": max((each for each in times if each is not None), default=None),
    }
    unknown = sum(not each.lag_is_known for each in seen)
    is_known = is_whole and bool(seen) and not unknown
    missing = [
        name for name, values in (("lag_records", records), ("lag_bytes", sizes), ("lag_s", times)) if not is_known or None in values
    ]
    return {**known, **dict.fromkeys(missing), "at_least": known, "lag_unknown": unknown}


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
        "reported_ms": process.at_ms,
        "is_current": is_current,
    }


def _change(change: "Change", seen: "Sequence[SeenRow]") -> dict[str, Any]:
    """With how many of the topics that processes report an addition matches; None where that is not known."""
    from moldau.mirror.selection import Action

    topics = {each.row.topic for each in seen if change.matches(each.row.topic)} if seen and change.action is Action.ADD else None
    return {"action": change.action.value, "pattern": change.pattern.pattern, "topics": None if topics is None else len(topics)}


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
