"""Rows by way of a topic of the job's own, which divides them by Kafka's hash of their key: one query writes them, others read them.

The topic's records have the key as any output writes it, so that every Kafka client finds the partition of a key, and a topic with as many
partitions and the same keys is divided in the same way. The values are JSON without loss (`moldau.streams.exact_json`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.client.admin import Admin
from moldau.client.errors import RequestFailedError
from moldau.client.partition_requests import END_OF_LOG
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.event_times import COLUMN as EVENT_TIME
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.streams.errors import StreamError
from moldau.streams.exact_json import packed, packed_schema, quoted, unpacked
from moldau.streams.inputs import check_duration
from moldau.streams.json_values import CORRUPT, is_corrupt, json_event
from moldau.streams.outputs import BatchNumber, TopicOutput
from moldau.streams.progress import METRIC, NEWEST_MS, ROWS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_CLIENT_ID = "moldau-stream"
_VALUE, _EVENT = "_moldau_value", "_moldau_event"
_RECORD = "value binary, topic string, partition int, offset bigint, timestamp timestamp"


@dataclass(frozen=True, slots=True)
class ThroughOutput:
    """The rows of a batch as records of the job's own topic."""

    records: TopicOutput
    schema: "StructType"
    partitions: int | str | None
    """So many, or as many as this topic has."""

    @property
    def name(self) -> str:
        """The topic's."""
        return self.records.name

    @property
    def place(self) -> str:
        """Where it is."""
        return self.records.place

    def of_generation(self, number: int) -> "ThroughOutput":
        """The same topic: a run of one generation has it for itself, as none with rows through a topic is made beside another one."""
        return self

    def check(self, frame: Any) -> None:
        """The topic has the partitions that are wanted, or it is missing and can be made."""
        with ClusterLog(self.records.brokers, _CLIENT_ID) as source:
            there, wanted = self._partitions(source)
        if there is None and wanted is None:
            raise StreamError(f"there is no topic {self.name} at {self.records.brokers}: name with partitions= how many it is to have")
        if there is not None and wanted is not None and there != wanted:
            as_many = f", as many as topic {self.partitions}" if isinstance(self.partitions, str) else ""
            raise StreamError(
                f"topic {self.name} has {there} partitions, and the rows are to be divided into {wanted}{as_many}: "
                f"the same keys would be in other partitions; take another topic"
            )
        if there is not None:
            self.records.check(self._valued(frame))

    def make(self) -> None:
        """Make the topic if it is missing: the reading query needs it."""
        with ClusterLog(self.records.brokers, _CLIENT_ID) as source:
            there, wanted = self._partitions(source)
            if wanted is None or there is not None:
                return
            try:
                Admin(source.cluster).create_topic(self.name, wanted, configs={"cleanup.policy": "delete"})
            except RequestFailedError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    def write(self, rows: Any, batch: BatchNumber) -> None:
        """In a transaction of the sink; a batch that is decided is not written again."""
        self.records.write(self._valued(rows), batch)

    def empty(self) -> None:
        """Delete what the topic has: a job that begins again writes its rows again, and reads them from the beginning."""
        with ClusterLog(self.records.brokers, _CLIENT_ID) as source:
            if (there := source.topics([self.name]).get(self.name)) is not None:
                Admin(source.cluster).delete_records({TopicPartition(self.name, number): END_OF_LOG for number in range(there.partitions)})

    def _partitions(self, source: ClusterLog) -> tuple[int | None, int | None]:
        """How many the topic has, None if it is missing, and how many it is to have; both in one answer of the brokers."""
        names = [self.name, *([self.partitions] if isinstance(self.partitions, str) else [])]
        found = {name: known.partitions for name, known in source.topics(names).items()}
        if not isinstance(self.partitions, str):
            return found.get(self.name), self.partitions
        if self.partitions not in found:
            raise StreamError(f"topic {self.name} is to have as many partitions as topic {self.partitions}, which does not exist")
        return found.get(self.name), found[self.partitions]

    def _valued(self, rows: Any) -> Any:
        return rows.withColumn(_VALUE, packed(self.schema))


def through_output(frame: Any, topic: str, brokers: str, key: tuple[str, ...], partitions: int | str | None) -> ThroughOutput:
    """The output for rows like those of the frame. ValueError, StreamError for columns that cannot be brought through a topic."""
    if not key:
        raise ValueError(f"topic {topic}: name with key= the columns by which rows are divided")
    if CORRUPT in frame.columns:
        raise ValueError(f"topic {topic}: rename the column {CORRUPT}")
    if isinstance(partitions, int) and partitions < 1:
        raise ValueError(f"topic {topic}: at least one partition is needed, not {partitions}")
    packed_schema(frame.schema, f"topic {topic}")
    return ThroughOutput(TopicOutput(topic, brokers, key, _VALUE), frame.schema, partitions)


def read_through(spark: Any, output: ThroughOutput, *, group: str, delay: str, records_max: int | None) -> Any:
    """The rows as a stream with the same columns; `event_time`, if it is one of them, with its watermark."""
    from pyspark.sql import functions

    topic, schema = output.name, output.schema
    reader = spark.readStream.format("moldau").options(
        **{"kafka.bootstrap.servers": output.records.brokers, "subscribe": topic, "startingOffsets": "earliest"},
        groupId=group,
        isolationLevel="read_committed",
    )
    if records_max is not None:
        reader = reader.option("maxOffsetsPerTrigger", records_max)
    records = reader.schema(_RECORD).load()
    event = json_event(functions.col("value"), packed_schema(schema, f"topic {topic}"))
    rows = records.withColumn(_EVENT, event)
    rows = rows.observe(
        METRIC + topic,
        functions.count(functions.lit(1)).alias(ROWS),
        functions.max(functions.unix_millis("timestamp")).alias(NEWEST_MS),
    )
    text = functions.format_string("%s-%d: offset %d: the value is no row of this job", "topic", "partition", "offset")
    wrong = functions.col("value").isNull() | is_corrupt(functions.col(_EVENT))
    rows = rows.filter(functions.when(wrong, functions.raise_error(text).cast("boolean")).otherwise(functions.lit(True)))
    rows = rows.select(*unpacked(functions.col(_EVENT), schema))
    if EVENT_TIME in schema.names:
        rows = rows.withWatermark(quoted(EVENT_TIME), check_duration(f"topic {topic}: delay", delay))
    return rows
