"""Turns JSON lines of the benchmarks into Markdown tables: our figure, the rival's, their ratio, and whether the target is met.

    python benchmarks/ratios.py FILE...

Seven tables: the broker beside Apache Kafka, three brokers beside three of Apache Kafka, mirrors beside MirrorMaker 2, Spark's source and
sink beside Spark's own Kafka connector, stream jobs beside the same queries over that, commands beside kcat, and what has no rival.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from alone_rows import alone_rows
from broker_rows import broker_rows
from cluster_rows import cluster_rows
from command_rows import command_rows
from mirror_rows import mirror_rows
from row import Row, Summary
from spark_rows import spark_rows
from stream_rows import stream_rows


def summaries(paths: Iterable[Path]) -> list[Summary]:
    """The lines that sum up runs."""
    lines = (json.loads(text) for path in paths for text in path.read_text().splitlines() if text.startswith("{"))
    return [line for line in lines if line.get("summary")]


def table(columns: tuple[str, ...], rows: Iterable[Row]) -> str:
    """A table, or nothing if there are no rows."""
    found = [row.markdown() for row in rows]
    return "\n".join([f"| {' | '.join(columns)} | |", "|---" * (len(columns) + 1) + "|", *found, ""]) if found else ""


def tables(lines: list[Summary]) -> str:
    """All of them."""
    found = (
        table(("cell (200-byte messages, one client, one partition)", "Moldau", "Kafka", "ratio", "target"), broker_rows(lines)),
        table(("three brokers, three replicas of which one may fail, acks all", "Moldau", "Kafka", "ratio", "target"), cluster_rows(lines)),
        table(("mirrors: 2 M messages, four partitions, a broker on each side", "Moldau", "MM2", "ratio", "target"), mirror_rows(lines)),
        table(("Spark, two tasks, two partitions", "Moldau", "connector", "ratio", "target"), spark_rows(lines)),
        table(("stream jobs, two cores, beside plain sinks", "Moldau", "connector", "ratio", "target"), stream_rows(lines)),
        table(("command, its start included", "Moldau", "kcat", "ratio", "target"), command_rows(lines)),
        table(("without a rival", "Moldau", "target"), alone_rows(lines)),
    )
    return "\n".join(filter(None, found))


def main() -> None:
    """Print the tables."""
    print(tables(summaries(map(Path, sys.argv[1:]))), end="")


if __name__ == "__main__":
    main()
