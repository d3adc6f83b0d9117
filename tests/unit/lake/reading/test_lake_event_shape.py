"""Rows of decoded events: in order, beside their records' columns, and broken ones as the mode has it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql.types import StructType

from moldau.lake.avro.columns import AvroColumns
from moldau.lake.avro.schemas import AvroText
from moldau.lake.avro.types import arrow_schema
from moldau.lake.reading.columns import RecordColumns
from moldau.lake.reading.event_shape import DeadLetterFile, EventMaker, EventShape, MalformedEventError, all_columns, local_directory
from moldau.lake.reading.offsets import OffsetRange, OptionError
from moldau.lake.reading.options import DEAD_LETTERS, FAILFAST, PERMISSIVE, AvroOptions
from support.avro_registry import MemoryRegistry

SCHEMA = json.dumps({"type": "record", "name": "E", "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}]})
RANGE = OffsetRange("t", 1, 10, 30)


def options(mode: str = FAILFAST, path: str | None = None, columns: tuple[str, ...] = ("offset", "key")) -> AvroOptions:
    return AvroOptions("http://r:1", "s", None, mode, path, columns)


def rows(avro: AvroOptions, *values: bytes | None) -> list[dict[str, Any]]:
    """What a task makes of records with these values at the offsets 10, 11, ..."""
    registry = MemoryRegistry()
    registry.add(SCHEMA)
    columns = AvroColumns(registry, reader_schema=SCHEMA)
    file = None if avro.dead_letter_path is None else DeadLetterFile(avro.dead_letter_path, RANGE, "abcdef0123")
    maker = EventMaker(RANGE, avro.mode, columns, all_columns(avro, columns.schema), file)
    count = len(values)
    records = RecordColumns(
        offset=np.arange(10, 10 + count),
        timestamp_ms=np.full(count, 1_357_000_000_000),
        timestamp_type=np.zeros(count, np.int64),
        key=pa.array([b"k"] * count),
        value=pa.array(values, pa.binary()),
        headers=None,
    )
    made = [row for batch in maker.batches(records) for row in batch.to_pylist()]
    maker.finish()
    return made


def value(number: int) -> bytes:
    return b"\0\0\0\0\x01" + bytes([2 * number, 2]) + b"x"


BAD = b"\0\0\0\0\x01\x02"


def test_events_stand_beside_their_records() -> None:
    assert rows(options(), value(1), value(2)) == [
        {"n": 1, "s": "x", "_offset": 10, "_key": b"k"},
        {"n": 2, "s": "x", "_offset": 11, "_key": b"k"},
    ]


def test_a_broken_value_fails_the_task_by_name() -> None:
    message = "t-1: offset 11: schema id 1: the value ends in the middle of the event; mode=PERMISSIVE would read it as nulls"
    with pytest.raises(MalformedEventError, match=message):
        rows(options(), value(1), BAD, value(2))


def test_or_is_a_row_of_nulls_with_its_error() -> None:
    made = rows(options(PERMISSIVE), value(1), BAD, None, value(2))
    assert [(row["n"], row["_offset"], row["_error"]) for row in made] == [
        (1, 10, None),
        (None, 11, "schema id 1: the value ends in the middle of the event"),
        (None, 12, None),
        (2, 13, None),
    ]


def test_or_is_put_aside_in_a_file_of_its_range(tmp_path: Path) -> None:
    put_aside = options(DEAD_LETTERS, str(tmp_path / "dead"))
    for _ in range(2):
        made = rows(put_aside, value(1), BAD, None, value(2), b"x")
        assert [(row["n"], row["_offset"]) for row in made] == [(1, 10), (None, 12), (2, 13)]
    [file] = (tmp_path / "dead").iterdir()
    assert file.name == "t-abcdef01-1-00000000000000000010-00000000000000000030.parquet"
    dead = pa.parquet.read_table(file).to_pylist()
    assert [(row["topic"], row["partition"], row["offset"], row["key"], row["value"]) for row in dead] == [
        ("t", 1, 11, b"k", BAD),
        ("t", 1, 14, b"k", b"x"),
    ]
    assert dead[0]["error"] == "schema id 1: the value ends in the middle of the event"
    rows(put_aside, value(1))
    assert list((tmp_path / "dead").iterdir()) == [], "a range that is read again without any leaves none"


def test_columns_are_chosen_by_name() -> None:
    shape = EventShape(options(PERMISSIVE), AvroText(SCHEMA), arrow_schema(SCHEMA), ("n", "s", "_offset", "_key", "_error"))
    assert shape.spark_schema().simpleString() == "struct<n:int,s:string,_offset:bigint,_key:binary,_error:string>"
    assert shape.fields == ("value", "key")
    chosen = shape.chosen(StructType().add("_error", "string").add("s", "string"))
    assert chosen.columns == ("_error", "s")
    assert chosen.fields == ("value",)
    with pytest.raises(OptionError, match="there is no column 'z'; there are n, s"):
        shape.chosen(StructType().add("z", "integer"))
    with pytest.raises(OptionError, match="column n is int, not bigint"):
        shape.chosen(StructType().add("n", "long"))


def test_a_name_that_an_event_has_is_not_taken() -> None:
    taken = pa.schema([("_offset", pa.int64()), ("_error", pa.string())])
    with pytest.raises(OptionError, match="option kafkaColumns: would add a column _offset, which is a field of the events"):
        all_columns(options(), taken)
    with pytest.raises(OptionError, match="option mode: would add a column _error"):
        all_columns(options(PERMISSIVE, columns=()), taken)


def test_dead_letters_lie_in_a_directory() -> None:
    assert local_directory("/a/b") == local_directory("file:///a/b") == local_directory("file:/a/b") == "/a/b"
    with pytest.raises(OptionError, match="option deadLetterPath: is a directory that all tasks see as a local one, not 's3://b/c'"):
        local_directory("s3://b/c")
