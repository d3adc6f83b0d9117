"""The rows of the broker beside Apache Kafka, out of the lines of the benchmarks."""

from collections.abc import Iterator

from row import Row, Summary

PRODUCE_TARGETS = {  # (batch, acks): least ratio of rates, greatest ratio of processor time
    ("large", "1"): (1.5, 0.4),
    ("50", "0"): (2.5, 0.3),
    ("50", "1"): (2.5, 0.3),
    ("1", "1"): (3.0, 0.2),
    ("1", "0"): (5.0, 0.2),
}


def rows(ours: Summary, theirs: Summary) -> Iterator[Row]:
    """The rows of one test."""
    match ours["test"]:
        case "produce":
            cell = f"produce, batch {ours['batch']}, acks {ours['acks']}"
            rate, cpu = PRODUCE_TARGETS.get((ours["batch"], ours["acks"]), (None, None))
            yield Row(f"{cell}: messages/s", ours["rate"]["median"], theirs["rate"]["median"], rate, True)
            yield Row(
                f"{cell}: broker CPU s per million", ours["cpu_s_per_million"]["median"], theirs["cpu_s_per_million"]["median"], cpu, False
            )
            if ours["acks"] == "1":
                yield Row(f"{cell}: bytes per message beyond 200", ours["overhead_bytes"], theirs["overhead_bytes"], 1.02, False)
        case "consume":
            cell = f"consume, log of batch {ours['batch']}, fetch {ours['fetch']}"
            yield Row(f"{cell}: messages/s", ours["rate"]["median"], theirs["rate"]["median"], 1.0, True)
            yield Row(
                f"{cell}: broker CPU s per million", ours["cpu_s_per_million"]["median"], theirs["cpu_s_per_million"]["median"], 0.7, False
            )
        case "latency":
            cell = f"end to end at {ours['rate']:,}/s, acks {ours['acks']}"
            goal = ours["rate"] == 1000 and ours["acks"] == "1"
            yield Row(f"{cell}: p50 µs", ours["p50_us"]["median"], theirs["p50_us"]["median"], 0.8 if goal else None, False)
            yield Row(f"{cell}: p99 µs", ours["p99_us"]["median"], theirs["p99_us"]["median"], 1.0 if goal else None, False)
        case "start":
            yield Row("start to first acknowledgement, s", ours["first_ack_s"]["median"], theirs["first_ack_s"]["median"], 1 / 6, False)
            yield Row("memory idle, MB", ours["idle_rss_mb"]["median"], theirs["idle_rss_mb"]["median"], 1 / 8, False)
        case "transactions":
            cell = "transactions of 100 records"
            yield Row(f"{cell}: messages/s", ours["rate"]["median"], theirs["rate"]["median"], 1.0, True)
            yield Row(
                f"{cell}: broker CPU s per million", ours["cpu_s_per_million"]["median"], theirs["cpu_s_per_million"]["median"], None, False
            )
        case "first record":
            bound = 0.5 if theirs["system"] == "kafka as shipped" else 1.0
            cell = f"subscribe to first record of a new group, s ({theirs['system']})"
            yield Row(cell, ours["seconds"]["median"], theirs["seconds"]["median"], bound, False)
        case "rebalance":
            yield Row("rebalance of 20 members, ms", ours["ms"]["median"], theirs["ms"]["median"], 1.0, False)
        case "memory after":
            yield Row("memory after the tests, MB", ours["rss_mb"], theirs["rss_mb"], 1 / 8, False)


def broker_rows(lines: list[Summary]) -> Iterator[Row]:
    """Rows of all cells that were measured with both."""
    for ours, theirs in pairs(lines):
        yield from rows(ours, theirs)


def pairs(lines: list[Summary]) -> Iterator[tuple[Summary, Summary]]:
    """Summaries of the same cell, ours and theirs."""
    names = ("test", "batch", "acks", "fetch", "rate")
    rivals: dict[tuple[object, ...], list[Summary]] = {}
    for line in lines:
        if line["system"] != "moldau":
            rivals.setdefault(tuple(line.get(name) if not isinstance(line.get(name), dict) else None for name in names), []).append(line)
    for line in lines:
        if line["system"] == "moldau":
            key = tuple(line.get(name) if not isinstance(line.get(name), dict) else None for name in names)
            yield from ((line, rival) for rival in rivals.get(key, []))
