"""The rows of stream jobs beside the same queries over Spark's own Kafka connector with plain sinks: of streams.py."""

from collections.abc import Iterator

from row import Row, Summary, median
from spark_rows import CONNECTOR

RATES = {
    "stream counts": "window counts to a table",
    "stream join": "join of two topics to a table",
    "stream distinct": "rows without repetitions to a topic",
    "stream counter": "stateful counter in Python to a topic",
}
RATE_LEAST, LATENCY_MOST, STATE_MOST, RESTART_MOST = 1.2, 0.9, 1.0, 1.0


def stream_rows(lines: list[Summary]) -> Iterator[Row]:
    """Rows of the tests that ran with both, in the order of the lines."""
    rivals = {line["test"]: line for line in lines if line["system"] == CONNECTOR}
    for ours in lines:
        test = ours["test"]
        theirs = rivals.get(test)
        if theirs is None or ours is theirs or not test.startswith("stream "):
            continue
        if test in RATES:
            cell = RATES[test]
            yield Row(f"{cell}: records/s", median(ours["rate"]), median(theirs["rate"]), RATE_LEAST, True)
            yield Row(f"{cell}: CPU s per million", median(ours["cpu"]), median(theirs["cpu"]), None, False)
        elif test == "stream latency":
            yield Row("window counts at 1,000 events/s: ms of a batch", median(ours["ms"]), median(theirs["ms"]), LATENCY_MOST, False)
        elif test == "stream state":
            yield Row(f"state of {ours['keys']:,} keys: MB of all processes", ours["mb"], theirs["mb"], STATE_MOST, False)
        elif test == "stream restart":
            yield from _restart("", ours, theirs, RESTART_MOST)
        elif test == "stream restart prepared":
            yield from _restart(", after `moldau spark prepare`", ours, rivals["stream restart"], RESTART_MOST)
            yield from _restart(", after it also beside", ours, theirs, None)


def _restart(how: str, ours: Summary, theirs: Summary, most: float | None) -> Iterator[Row]:
    yield Row(f"restart from a checkpoint{how}, whole process: s", median(ours["seconds"]), median(theirs["seconds"]), most, False)
    yield Row(f"restart from a checkpoint{how}: CPU s", median(ours["cpu"]), median(theirs["cpu"]), None, False)
