"""What Spark SQL says of the table by itself, without the audit and without the load: every event once, and none of its fields changed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.demo.inputs import LINE_FIELD, BadLine, EventInput

GUID_SUM = "pmod(sum(CAST(xxhash64(header.guid) AS DECIMAL(38, 0))), 18446744073709551616)"
"""The audit's checksum."""
_SUM = "pmod(sum(CAST(xxhash64({columns}) AS DECIMAL(38, 0))), 18446744073709551616)"
_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Proof:
    """Of the table: its rows, different lines and guids, the checksum of the guids, and one of the lines and all fields.

    `expected_rows` and `expected_content` are of the input as it is read once more, without the planted loss.
    """

    rows: int
    lines: int
    guids: int
    checksum: int
    content: int
    expected_rows: int
    expected_content: int

    @property
    def holds(self) -> bool:
        """Every event of the input once, as it was."""
        return self.rows == self.lines == self.guids == self.expected_rows and self.content == self.expected_content


def prove(spark: Any, table: Any, source: EventInput, without: tuple[int, ...]) -> Proof:
    """`table` is a frame of the loaded table; `without` are lines that it cannot have. What Spark raises."""
    fields = [field for field in source.schemas()[-1]["fields"] if field["name"] in table.columns]
    time = ["unix_millis(header.time) AS time_ms"] if source.timed else []
    flat = table.selectExpr(*(_filled(field) for field in fields), *time, "header")
    content = _SUM.format(columns=", ".join(f"`{name}`" for name in flat.columns if name != "header"))
    different = (f"count(DISTINCT {LINE_FIELD})", "count(DISTINCT header.guid)")
    sums = (f"CAST({GUID_SUM} AS STRING)", f"CAST({content} AS STRING)")
    rows, lines, guids, checksum, found = flat.selectExpr("count(*)", *different, *sums).first()
    expected = _input_frame(spark, flat.drop("header"), source, fields, without)
    expected_rows, wanted = expected.selectExpr("count(*)", f"CAST({content} AS STRING)").first()
    return Proof(rows, lines, guids, int(checksum or 0), int(found or 0), expected_rows, int(wanted or 0))


def _filled(field: Mapping[str, Any]) -> str:
    """A column with its default where it is empty: rows that were loaded before the schema had the field have nothing there."""
    name, default = field["name"], field.get("default")
    return f"coalesce(`{name}`, '{default}') AS `{name}`" if isinstance(default, str) else f"`{name}`"


def _input_frame(spark: Any, like: Any, source: EventInput, fields: list[Mapping[str, Any]], without: tuple[int, ...]) -> Any:
    """The events of the input with the columns of `like`, read by a task for each host."""
    defaults = {field["name"]: field.get("default") for field in fields}
    hosts = len(source.hosts)

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(like_schema)
        for batch in batches:
            for host in batch.column(0).to_pylist():
                rows: list[dict[str, Any]] = []
                for item in source.events(host):
                    if isinstance(item, BadLine) or item.line in without:
                        continue
                    rows.append({**defaults, **item.fields, LINE_FIELD: item.line, "time_ms": item.time_ms})
                    if len(rows) == _BATCH:
                        yield pa.RecordBatch.from_pylist(rows, schema)
                        rows = []
                yield pa.RecordBatch.from_pylist(rows, schema)

    like_schema = like.schema
    return spark.range(0, hosts, 1, hosts).mapInArrow(read, like_schema)
