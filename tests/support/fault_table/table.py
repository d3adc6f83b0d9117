"""The table in words: what happened by fault, and which cells were run."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from support.fault_table.cell import Result
from support.fault_table.faults import FAULTS, faults_of
from support.fault_table.stage import STORES
from support.fault_table.workloads import WORKLOADS

NAMES = {"file": "Metadata in a shared file", "zookeeper": "Metadata in ZooKeeper"}


def tables(results: Sequence[Result]) -> str:
    """Markdown."""
    parts = [_sum(results)]
    for store in STORES:
        found = [each for each in results if each.store == store]
        if found:
            parts += [f"### {NAMES[store]}", _by_fault(store, found), _cells(store, found)]
    return "\n\n".join(parts) + "\n"


def _sum(results: Sequence[Result]) -> str:
    cells = len({(each.store, each.workload, each.fault) for each in results})
    counts = f"{_total(results, 'faults')} faults in {cells} cells; {_total(results, 'acknowledged')} records acknowledged"
    lost, doubled, wrong = _total(results, "lost"), _total(results, "doubled"), sum(map(_is_wrong, results))
    return f"{counts}, {lost} lost, {doubled} doubled; {wrong} runs with something wrong."


def _by_fault(store: str, results: Sequence[Result]) -> str:
    rows = []
    for fault in faults_of(store):
        found = [each for each in results if each.fault == fault]
        if found:
            counts = [str(_total(found, name)) for name in ("faults", "acknowledged", "lost", "doubled")]
            longest = max(each.stall_s for each in found)
            rows.append([fault, *counts, f"{longest:.1f} s", str(sum(map(_is_wrong, found)))])
    return markdown(["fault", "injected", "acknowledged", "lost", "doubled", "longest stall", "runs with something wrong"], rows)


def _cells(store: str, results: Sequence[Result]) -> str:
    """Faults by fault and workload; empty is not run, ! is wrong."""
    rows = []
    for fault in (each for each in FAULTS if each in faults_of(store)):
        row = [fault]
        for workload in WORKLOADS:
            found = [each for each in results if (each.fault, each.workload) == (fault, workload)]
            row.append((str(_total(found, "faults")) + "!" * any(map(_is_wrong, found))) if found else "")
        rows.append(row)
    return markdown(["faults injected", *WORKLOADS], rows)


def _is_wrong(result: Result) -> bool:
    return bool(result.wrong)


def _total(results: Iterable[Result], name: str) -> int:
    return sum(getattr(each, name) for each in results)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_between(file: Path, begin: str, end: str, text: str) -> None:
    """Replace what a page has between two marks."""
    page = file.read_text()
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    file.write_text(f"{before}{begin}\n{text}{end}{after}")
