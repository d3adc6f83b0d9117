"""``spark.read.format("moldau")``: topics as Spark rows, read by Python tasks over our own connection, without a jar.

Names of options and columns are those of Spark's Kafka connector (``docs/lake.md`` lists them). Python data sources are not told which
columns a query needs; who wants to read less than everything names the columns with ``.schema("value binary, offset bigint")``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moldau.lake.offsets import OffsetRange, OptionError
from moldau.lake.options import ReadOptions, parse_options


@dataclass
class RangePartition(InputPartition):
    """One task: one range of one partition, of the topic that had this id when the read was planned."""

    value: OffsetRange
    topic_id: str


class MoldauDataSource(DataSource):
    """The format ``moldau``."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "moldau"

    def schema(self) -> str:
        """All columns of a read with these options."""
        from moldau.lake.batches import SPARK_TYPES, column_names

        options = parse_options(self.options)
        return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in column_names(include_headers=options.include_headers))

    def reader(self, schema: StructType) -> "MoldauReader":
        """A batch read of the columns in `schema`."""
        options = parse_options(self.options)
        return MoldauReader(options, _checked_columns(schema, options))


def _checked_columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Names in `schema`, which may leave columns out and change their order, but not their types."""
    from moldau.lake.batches import SPARK_TYPES, column_names

    known = column_names(include_headers=options.include_headers)
    for field in schema.fields:
        if field.name not in known:
            hint = "; it needs the option includeHeaders=true" if field.name == "headers" else f"; there are {', '.join(known)}"
            raise OptionError("schema", f"there is no column {field.name!r}{hint}")
        if field.dataType.simpleString() != SPARK_TYPES[field.name]:
            raise OptionError("schema", f"column {field.name} is {SPARK_TYPES[field.name]}, not {field.dataType.simpleString()}")
    return tuple(field.name for field in schema.fields)


class MoldauReader(DataSourceReader):
    """Plans a batch on the driver and reads its ranges in tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """Ranges with fixed offsets; run once for each query."""
        from moldau.lake.cluster_log import ClusterLog
        from moldau.lake.planning import plan

        with ClusterLog(self.options.bootstrap, self.options.client_id, isolation_level=self.options.isolation_level) as log:
            ranges = plan(self.options, log)
            ids = {topic: log.topic_id(topic) for topic in {wanted.topic for wanted in ranges}}
            return [RangePartition(wanted, ids[wanted.topic]) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches of one range. ReadError, DataLossError."""
        from moldau.lake.batches import record_batches
        from moldau.lake.cluster_log import ClusterLog
        from moldau.lake.reading import RangeRead, ReadRules

        if not isinstance(partition, RangePartition):  # Spark makes one task of a plan without any
            return
        wanted = partition.value
        rules = ReadRules(
            wanted=frozenset(self.columns),
            bytes_max=self.options.max_bytes_per_fetch,
            fail_on_data_loss=self.options.fail_on_data_loss,
            poll_timeout_s=self.options.poll_timeout_ms / 1000,
        )
        timeout_s, level = min(30.0, rules.poll_timeout_s), self.options.isolation_level
        with ClusterLog(self.options.bootstrap, self.options.client_id, timeout_s, isolation_level=level) as log:
            for columns in RangeRead(log, wanted, rules, topic_id=partition.topic_id):
                yield from record_batches(columns, wanted.topic, wanted.partition, self.columns)
