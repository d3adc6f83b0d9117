"""The queries of `streams.py`, by our job and over Spark's own Kafka connector with plain sinks. As a program: one of them.

    python benchmarks/stream_queries.py SYSTEM QUERY BOOTSTRAP REGISTRY SPACE      prints a line of JSON when it has read all there is

Both have the same state store (RocksDB, of which a batch stores the changes), the same batches, and the same Python function in the
stateful counter.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pandas
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from moldau.streams import StreamJob, windows
from moldau.streams.session import configured
from moldau.tracking.producer import text_bytes, time_bytes

MOLDAU = "moldau"
MEMORY = "2g"
"""As the other one has it (`spark_turns`)."""
BEGIN_MS, SPAN_MS = 1_356_998_400_000, 86_400_000
AIRPORTS = 300
SCHEMA = json.dumps({
    "type": "record", "name": "Departure", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "airport", "type": "string"},
        {"name": "number", "type": "long"},
        {"name": "remark", "type": "string"},
    ],
})  # fmt: skip
_REMARK = text_bytes("r" * 120)
_AIRPORTS = [text_bytes(f"A{number:03}") for number in range(AIRPORTS)]
QUERIES = ("counts", "join", "distinct", "counter")
_FILES = "spark.sql.streaming.checkpointFileManagerClass"
TOPIC_SINKS = ("distinct", "counter")
"""These write to a topic, the others files."""


def value_of(prefix: bytes, when_ms: int, number: int) -> bytes:
    """An event of 150 bytes, framed as the registry has it."""
    return b"".join((prefix, time_bytes(when_ms), _AIRPORTS[number % AIRPORTS], time_bytes(number), _REMARK))


class AirportCounter(StatefulProcessor):
    """How many events an airport has had."""

    def init(self, handle: Any) -> None:
        """One number for each key."""
        self._count = handle.getValueState("count", "events long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803  # Spark's names
        """The sum so far."""
        had = self._count.get()
        count = (had[0] if had is not None else 0) + sum(len(each) for each in rows)
        self._count.update((count,))
        yield pandas.DataFrame({"airport": [key[0]], "events": [count]})

    def close(self) -> None:
        """Nothing is open."""


class StreamBench:
    """The queries of one system. Each round has names, topics and directories of its own."""

    def __init__(self, spark: Any, bootstrap: str, registry: str, system: str, space: Path, batch_rows: int | None) -> None:
        self.spark, self.bootstrap, self.registry = spark, bootstrap, registry
        self.system, self.space, self.batch_rows = system, space, batch_rows
        self.trigger: str | None = None
        self._job: StreamJob | None = None
        self._query: Any = None

    def start(self, query: str, name: str) -> None:
        """Prepare the query under this name: what has run under it before is continued."""
        if self.system == MOLDAU:
            directory = str(self.space / name)
            self._job = StreamJob(
                name, brokers=self.bootstrap, registry=self.registry, directory=directory, spark=self.spark, memory=MEMORY
            )  # fmt: skip
        else:
            configured(self.spark)
        frame = getattr(self, query)()
        mode = "update" if query == "counter" else "append"
        if self._job is not None:
            if query in TOPIC_SINKS:
                self._job.to_topic(frame, name, key="number" if query == "distinct" else "airport", mode=mode)
            else:
                self._job.to_table(frame, str(self.space / f"{name}-table"), mode=mode, time=None if query == "counts" else "event_time")
            return
        self.spark.conf.unset(_FILES)  # Spark's own
        writer = frame.writeStream.queryName(name).outputMode(mode).option("checkpointLocation", str(self.space / name))
        if query in TOPIC_SINKS:
            key = "string(number)" if query == "distinct" else "airport"
            rows = frame.selectExpr(f"{key} AS key", "to_json(struct(*)) AS value")
            writer = rows.writeStream.queryName(name).outputMode(mode).option("checkpointLocation", str(self.space / name))
            writer = writer.format("kafka").option("kafka.bootstrap.servers", self.bootstrap).option("topic", name)
        else:
            writer = writer.format("parquet").option("path", str(self.space / f"{name}-table"))
        self._query = writer

    def run(self) -> None:
        """All there is."""
        if self._job is not None:
            self._job.run(once=True)
        else:
            self._query.trigger(availableNow=True).start().awaitTermination()

    def run_on(self) -> None:
        """Until `stop`, batch after batch."""
        if self._job is not None:
            self._job.run()
        else:
            self._query = self._query.start()
            self._query.awaitTermination()

    def stop(self) -> None:
        """From another thread."""
        if self._job is not None:
            self._job.stop()
        else:
            self._query.stop()

    def topic(self, topic: str) -> Any:
        """Events as columns, with their watermark."""
        if self._job is not None:
            return self._job.topic(topic, format="avro", schema=SCHEMA, time="at", delay="10 minutes", records_max=self.batch_rows)
        from pyspark.sql import functions
        from pyspark.sql.avro.functions import from_avro

        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        if self.batch_rows is not None:
            reader = reader.option("maxOffsetsPerTrigger", self.batch_rows)
        rows = reader.load().select(from_avro(functions.expr("substring(value, 6)"), SCHEMA).alias("event")).select("event.*")
        return rows.withColumn("event_time", functions.col("at")).withWatermark("event_time", "10 minutes")

    def counts(self) -> Any:
        """By hour and airport."""
        return windows.tumbling(self.topic("departures"), "1 hour", "airport")

    def join(self) -> Any:
        """Departures and their arrivals within an hour."""
        both = windows.join(self.topic("departures"), self.topic("arrivals"), "number", before="1 minute", after="1 hour")
        return both.select("number", "airport", "event_time", "right_event_time")

    def distinct(self) -> Any:
        """Each number once a day."""
        return windows.distinct(self.topic("departures"), "1 day", "number").select("number", "airport", "at")

    def counter(self) -> Any:
        """Events by airport, by a Python function with state."""
        grouped = self.topic("departures").select("airport", "number").groupBy("airport")
        return grouped.transformWithStateInPandas(AirportCounter(), "airport string, events long", "Update", "None")


def main() -> None:
    """One query in a Spark of this process, to the end of what there is; counts of its last batch as JSON."""
    from spark_turns import bench_session

    system, query, name, bootstrap, registry, space, rows = sys.argv[1:]
    spark = None if system == MOLDAU else bench_session()  # a job by itself starts its own
    bench = StreamBench(spark, bootstrap, registry, system, Path(space), int(rows) or None)
    bench.start(query, name)
    bench.run()
    print(json.dumps({"done": True}), flush=True)
    input()  # until its memory has been looked at


if __name__ == "__main__":
    main()
