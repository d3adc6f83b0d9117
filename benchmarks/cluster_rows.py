"""The rows of three brokers beside three brokers of Apache Kafka, out of the lines of the benchmarks of clusters."""

from collections.abc import Iterator
from dataclasses import dataclass

from row import Row, Summary, median

PREFIX = "cluster: "
"""Of the names of their tests."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a test's summary: its name there, what it is, the target of the ratio or, where `absolute` is true, of the figure."""

    name: str
    what: str
    bound: float | None = None
    least: bool = False
    absolute: bool = False


LEADER, ACK = "another leader named, s", "next acknowledgement, s"
FIGURES: dict[str, tuple[Figure, ...]] = {
    "produce, large batches": (Figure("rate", "messages/s", 2.0, least=True), Figure("cpu_s_per_million", "CPU s per million", 0.3)),
    "produce, batches of 50": (Figure("rate", "messages/s", 5.0, least=True), Figure("cpu_s_per_million", "CPU s per million", 0.15)),
    "produce, batches of 1": (Figure("rate", "messages/s", 8.0, least=True), Figure("cpu_s_per_million", "CPU s per million", 0.1)),
    "consume, large batches": (Figure("rate", "messages/s", 1.0, least=True), Figure("cpu_s_per_million", "CPU s per million", 0.7)),
    "acknowledgement at 200/s": (Figure("p50_us", "p50 µs", 0.7), Figure("p99_us", "p99 µs", 0.7)),
    "acknowledgement at 1,000/s": (Figure("p50_us", "p50 µs"), Figure("p99_us", "p99 µs", 10_000, absolute=True)),
    "after the load": (Figure("rss_mb", "memory, MB", 0.1),),
    "start": (Figure("first_ack_s", "first acknowledgement, s", 0.2), Figure("idle_rss_mb", "memory idle, MB", 0.1)),
    "kill -9 of a leader": (
        Figure("leader_s", LEADER, 0.5, absolute=True),
        Figure("ack_s", ACK, 1.6, absolute=True),
        Figure("rejoin_s", "started again until in sync, s", 2.0, absolute=True),
    ),
    "kill -9 of a leader that is the controller": (
        Figure("leader_s", LEADER, 1.0, absolute=True),
        Figure("ack_s", ACK, 2.1, absolute=True),
        Figure("rejoin_s", "started again until in sync, s"),
    ),
    "SIGSTOP of a leader": (Figure("leader_s", LEADER), Figure("ack_s", ACK, 4.0, absolute=True)),
    "SIGSTOP of a leader, sessions of 2 s": (Figure("leader_s", LEADER), Figure("ack_s", ACK, 0.8)),
    "controlled stop of a leader": (Figure("leader_s", LEADER, 0.1, absolute=True), Figure("ack_s", ACK, 1.0)),
    "preferred election": (
        Figure("leader_s", "leader named, s", 0.05, absolute=True),
        Figure("gap_s", "longest time without an acknowledgement, s", 1.0),
        Figure("java_gap_s", "the same for the Java client, s", 0.1, absolute=True),
    ),
}
COUNTS = {"lost": "acknowledged messages lost", "doubled": "messages there twice"}
"""Summed over all faults; none is allowed."""


def cluster_rows(lines: list[Summary]) -> Iterator[Row]:
    """The rows, in the order of the lines: each of our systems beside Apache Kafka."""
    found = [line for line in lines if str(line.get("test")).startswith(PREFIX)]
    theirs = {line["test"]: line for line in found if _is_rival(line)}
    own = [line for line in found if not _is_rival(line) and line["test"] in theirs]
    for line in own:
        yield from _rows(line, theirs[line["test"]])
    for system in dict.fromkeys(line["system"] for line in own):
        for name, what in COUNTS.items():
            ours = [line[name] for line in own if line["system"] == system and name in line]
            if ours:
                rival = sum(line[name] for line in theirs.values() if name in line)
                yield Row(f"all faults: {what}{_beside(system)}", sum(ours), rival, 0, least=False, absolute=True)


def _rows(ours: Summary, theirs: Summary) -> Iterator[Row]:
    """The rows of one test."""
    test = ours["test"].removeprefix(PREFIX)
    for figure in FIGURES[test]:
        cell = f"{test}: {figure.what}{_beside(ours['system'])}"
        values = median(ours[figure.name]), median(theirs[figure.name])
        yield Row(cell, *values, figure.bound, figure.least, figure.absolute)


def _beside(system: str) -> str:
    """What a cell says of a system that is not the usual one."""
    return "" if system == "moldau" else f" ({system})"


def _is_rival(line: Summary) -> bool:
    return not str(line["system"]).startswith("moldau")
