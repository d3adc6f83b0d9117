"""The format ``moldau``: topics as Spark rows, of batches and streams, read and written by Python tasks, without a jar.

Names of options and columns are those of Spark's Kafka connector (``docs/spark-source.md`` lists them). Python data sources do not learn
which columns a query needs; a query for less than everything names the columns with ``.schema("value binary, offset bigint")``.

Spark makes these objects in several processes, some of them only to ask one question: nothing is connected before it is needed.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from moldau.lake.python_tasks import BALLAST
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.options import OptionScope, ReadOptions, parse_options

if TYPE_CHECKING:
    from moldau.lake.reading.batch_columns import BatchColumn
    from moldau.lake.reading.cluster_log import ClusterLog
    from moldau.lake.reading.planning import StreamOffsets, StreamPlanner
    from moldau.lake.reading.row_shape import RowShape
    from moldau.lake.writing.sink import MoldauStreamWriter, MoldauWriter

log = logging.getLogger(__name__)


@dataclass
class RangesPartition(InputPartition):
    """One task: ranges that are read one after the other, each of the topic that had this id when the read was planned."""

    value: list[tuple[OffsetRange, str | None]]


class MoldauDataSource(DataSource):
    """The format ``moldau``."""

    _shape: "RowShape | None" = None
    """Columns with the schema that was the registry's latest when the read was planned: readers of it come with copies of this object."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "moldau"

    def schema(self) -> StructType:
        """All columns of a read with these options."""
        from moldau.lake.reading.batch_columns import with_batch_column

        options = parse_options(self.options, OptionScope.EITHER)
        return with_batch_column(self._planned_shape(options).spark_schema(), options)

    def reader(self, schema: StructType) -> "MoldauReader":
        """A batch read of the columns in `schema`."""
        options = parse_options(self.options, OptionScope.BATCH)
        return MoldauReader(options, self._planned_shape(options).chosen(schema))

    def streamReader(self, schema: StructType) -> "MoldauStreamReader":  # noqa: N802  # Spark's name
        """A stream of the columns in `schema`."""
        from moldau.lake.reading.batch_columns import without_batch_column

        options = parse_options(self.options, OptionScope.STREAM)
        read, column = without_batch_column(schema, options)
        return MoldauStreamReader(options, self._planned_shape(options).chosen(read), column)

    def writer(self, schema: StructType, overwrite: bool) -> "MoldauWriter":
        """A batch write of rows like `schema` (docs/spark-sink.md)."""
        from moldau.lake.writing.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "MoldauStreamWriter":  # noqa: N802
        """A stream's write of rows like `schema`."""
        from moldau.lake.writing.sink import stream_writer

        return stream_writer(self.options, schema)

    def _planned_shape(self, options: ReadOptions) -> "RowShape":
        if self._shape is None:
            self._shape = plan_shape(options)
        return self._shape


def plan_shape(options: ReadOptions) -> "RowShape":
    """All columns of a read. With ``format=avro`` asks the registry: RegistryError, RegistryUnavailableError, AvroSchemaError."""
    if options.avro is None:
        from moldau.lake.reading.row_shape import RecordShape, column_names

        return RecordShape(column_names(include_headers=options.include_headers))
    from moldau.lake.reading.event_shape import plan_event_shape

    return plan_event_shape(options, options.avro)


class MoldauReader(DataSourceReader):
    """Plans a batch on the driver and reads its ranges in tasks."""

    def __init__(self, options: ReadOptions, shape: "RowShape") -> None:
        self.options = options
        self.shape = shape
        self.ballast = BALLAST

    def partitions(self) -> list[InputPartition]:
        """Ranges with fixed offsets; run once for each query."""
        from moldau.lake.reading.cluster_log import ClusterLog
        from moldau.lake.reading.planning import plan

        with ClusterLog(self.options.bootstrap, self.options.client_id, isolation_level=self.options.isolation_level) as source:
            ranges = plan(self.options, source)
            ids = {topic: source.topic_id(topic) for topic in {wanted.topic for wanted in ranges}}
            return [RangesPartition([(wanted, ids[wanted.topic])]) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches of one range. ReadError, DataLossError, MalformedEventError."""
        from moldau.lake.reading.tasks import read_ranges

        if isinstance(partition, RangesPartition):  # Spark makes one task of a plan without any
            yield from read_ranges(self.options, self.shape, partition.value)


class MoldauStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, in one process for a whole run of a query, and reads their ranges in tasks.

    Spark calls ``commit`` of a source before it plans a batch after another, so never after the last one. But the start that it gives
    to `latestOffset` has always been through the sink: it is in the commit log before the next batch is planned, with
    Trigger.AvailableNow also after the last one, and a restart begins there too. So every start is committed to the group.
    """

    def __init__(self, options: ReadOptions, shape: "RowShape", column: "BatchColumn | None") -> None:
        self.options = options
        self.shape = shape
        self.column = column
        self.ballast = BALLAST
        self._source: ClusterLog | None = None
        self._planner: StreamPlanner | None = None
        self._committed: StreamOffsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names, here and below
        """Where a new query starts."""
        return self._plans().initial().to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` if there is nothing to read yet. DataLossError."""
        from moldau.lake.reading.planning import StreamOffsets

        reached = StreamOffsets.from_json(start)
        limited = not isinstance(limit, ReadAllAvailable)
        most = self.options.max_offsets_per_trigger if limited else None
        end = self._plans().next(reached, most, time.monotonic() * 1000, patient=limited)
        self._tell_group(reached)
        return end.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A limit of one kind is all that Spark takes from Python; `latestOffset` knows both of ours from the options."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run."""
        self._plans().stop_at_present()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the log when it was last looked at, for the query's progress."""
        newest = self._plans().newest
        return None if newest is None else newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch. DataLossError."""
        from moldau.lake.reading.planning import StreamOffsets, share_tasks

        upto = StreamOffsets.from_json(end)
        ranges = self._plans().ranges(StreamOffsets.from_json(start), upto)
        tasks = [[wanted] for wanted in ranges] if self.options.min_partitions else share_tasks(ranges)
        return [RangesPartition([(wanted, upto.ids.get(wanted.topic)) for wanted in task]) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches of one range. ReadError, DataLossError, MalformedEventError."""
        from moldau.lake.reading.batch_order import batch_order
        from moldau.lake.reading.counting import ordered_counts
        from moldau.lake.reading.event_times import EventTimes
        from moldau.lake.reading.narrowing import narrowed
        from moldau.lake.reading.tasks import read_ranges
        from moldau.lake.reading.watermark import with_watermark

        if not isinstance(partition, RangesPartition):
            return
        order = batch_order()
        if isinstance(self.column, EventTimes):
            shape, fill = narrowed(self.shape, self.column, order, self.options.counted_as)
            counting = ordered_counts(order, self.options.counted_as)
            yield from map(fill, read_ranges(self.options, shape, partition.value, self.column.of_batch(order), counting))
            return
        rows = read_ranges(self.options, self.shape, partition.value, counting=ordered_counts(order, None))
        yield from rows if self.column is None else with_watermark(rows, order)

    def commit(self, end: dict[str, Any]) -> None:
        """The sink has everything below `end`."""
        from moldau.lake.reading.planning import StreamOffsets

        self._tell_group(StreamOffsets.from_json(end))

    def stop(self) -> None:
        """Close connections."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _plans(self) -> "StreamPlanner":
        from moldau.lake.reading.cluster_log import ClusterLog
        from moldau.lake.reading.planning import StreamPlanner

        if self._planner is None:
            self._source = ClusterLog(self.options.bootstrap, self.options.client_id, isolation_level=self.options.isolation_level)
            self._planner = StreamPlanner(self.options, self._source)
        return self._planner

    def _tell_group(self, reached: "StreamOffsets") -> None:
        """Commit the offsets to the group, for people to see the lag: nothing is read from it, and a query does not fail for it."""
        from moldau.lake.reading.limits import read_limits
        from moldau.model.errors import MoldauError

        if self.options.group_id is None or reached == self._committed or not read_limits(self.options.limits_file).group:
            return
        planner = self._plans()
        assert self._source is not None
        try:
            self._source.commit(self.options.group_id, planner.same_now(reached))
        except MoldauError as error:
            log.warning("the offsets of the stream were not committed to group %s: %s", self.options.group_id, error)
        else:
            self._committed = reached
