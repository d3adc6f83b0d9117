"""All checks of a history."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from moldau.testing.history.evidence import Evidence
from moldau.testing.history.history import History
from moldau.testing.history.kinds import Anomaly, Kind
from moldau.testing.history.offset_checks import check_ends, check_group_offsets, check_stale_commits
from moldau.testing.history.progress_check import check_progress
from moldau.testing.history.record_checks import (
    check_early_reads,
    check_fencing,
    check_out_of_range,
    check_polls,
    check_send_order,
    check_whole_transactions,
    check_writes,
)
from moldau.testing.history.saving import save
from moldau.testing.history.transaction_checks import check_copies, check_flow

CHECKS = (
    check_writes,
    check_send_order,
    check_whole_transactions,
    check_fencing,
    check_polls,
    check_early_reads,
    check_flow,
    check_out_of_range,
    check_group_offsets,
    check_stale_commits,
    check_ends,
    check_copies,
    check_progress,
)
SHOWN_PER_KIND = 5


def anomalies(history: History) -> Iterator[Anomaly]:
    """Everything that is wrong, in no particular order. Linear in the length of the history, but for sorting times."""
    evidence = Evidence(history)
    yield from evidence.contradictions
    for check in CHECKS:
        yield from check(evidence)


def check(history: History) -> tuple[Counter[Kind], list[Anomaly]]:
    """How many of each kind, and the first few of each."""
    counts: Counter[Kind] = Counter()
    shown = []
    for anomaly in anomalies(history):
        counts[anomaly.kind] += 1
        if counts[anomaly.kind] <= SHOWN_PER_KIND:
            shown.append(anomaly)
    return counts, shown


def assert_clean(history: History, directory: Path, context: str = "") -> None:
    """Fail with what is wrong, and leave the history in a file; `context` says how to repeat the run."""
    counts, shown = check(history)
    if counts:
        file = save(history, directory / "history.jsonl")
        found = ", ".join(f"{count} × {kind.value}" for kind, count in counts.items())
        raise AssertionError("\n".join([f"{found} {context}", *map(str, shown), f"the whole history: {file}"]))
