"""The rows of Spark's source, sink and loads beside Spark's own Kafka connector: of spark_read.py, spark_write.py, load_tables.py."""

from collections.abc import Iterator

from row import Row, Summary, median

CONNECTOR = "spark connector"
"""The rival's name in the lines of both."""
SOURCE_TESTS: dict[str, tuple[str, float | None]] = {  # what it is, least ratio of rates, greatest of times (I1)
    "spark read count": ("source, batch, count", 1.0),
    "spark read sum": ("source, batch, sum of lengths", None),
    "spark read parquet": ("source, batch to Parquet", 0.9),
    "spark read available-now": ("source, AvailableNow to Parquet", 0.9),
    "spark read stream": ("source, AvailableNow to Parquet in four batches", 0.9),
    "spark read avro": ("source, Avro by columns beside from_avro", 1.0),
    "spark read avro-list": ("source, Avro with an array beside from_avro", 1.0),
    "spark read avro-union": ("source, Avro by fastavro beside from_avro", 0.5),
    "spark read micro": ("source, micro-batch of 20 records", 1.0),
}
FLOOR = "floor"
"""Rows of nothing: what Spark itself takes for a source in Python. Has no target."""
SINK_TESTS = {
    "spark write plain": "sink, values",
    "spark write keyed": "sink, with keys",
    "spark write lz4": "sink, values, lz4",
    "spark write stream": "sink, stream of four batches, our source",
    "spark write micro": "sink, micro-batch of 20 rows",
}
LOAD_TESTS = {"load large": ("load of {events:,} events, whole process", 2.0)}
SINK_SYSTEMS = {"moldau": "at least once", "moldau transactional": "transactional"}


def spark_rows(lines: list[Summary]) -> Iterator[Row]:
    """Rows of the tests that ran with both, in the order of the lines."""
    rivals = {line["test"]: line for line in lines if line["system"] == CONNECTOR}
    for ours in lines:
        theirs = rivals.get(ours["test"])
        if theirs is not None and ours is not theirs and not ours["test"].startswith("stream "):
            yield _row(ours, theirs)


def _row(ours: Summary, theirs: Summary) -> Row:
    test = ours["test"]
    if test.startswith("spark write"):
        cell, bound = f"{SINK_TESTS[test]}, {SINK_SYSTEMS[ours['system']]}", None
    elif test in LOAD_TESTS:
        cell, bound = LOAD_TESTS[test][0].format(**ours), LOAD_TESTS[test][1]
    else:
        cell, bound = SOURCE_TESTS[test]
    if ours["system"] == FLOOR:
        cell, bound = f"{cell}, rows of nothing", None
    if "ms" in ours:
        return Row(f"{cell}: ms", median(ours["ms"]), median(theirs["ms"]), bound, False)
    return Row(f"{cell}: rows/s", median(ours["rate"]), median(theirs["rate"]), bound, True)
