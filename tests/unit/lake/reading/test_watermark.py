"""The column of the watermark: the last one, and 0 where no batch has set it."""

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from moldau.lake.reading.offsets import OptionError
from moldau.lake.reading.options import OptionScope, parse_options
from moldau.lake.reading.watermark import with_column, with_watermark, without_column

OPTIONS = {"kafka.bootstrap.servers": "b:1", "subscribe": "flights", "watermarkColumn": "true"}


def test_it_is_the_last_column() -> None:
    events = StructType().add("_offset", LongType())
    assert with_column(events).names == ["_offset", "_watermark"]
    assert without_column(with_column(events)) == events
    with pytest.raises(OptionError, match="watermarkColumn: makes the column _watermark the last one of a schema"):
        without_column(events)
    with pytest.raises(OptionError, match="watermarkColumn: would add a column _watermark, which is a field of the events"):
        with_column(with_column(events))


def test_it_is_0_before_a_batch_has_set_it() -> None:
    (batch,) = with_watermark([pa.record_batch({"offset": [1, 2]})])
    assert batch.to_pydict() == {"offset": [1, 2], "_watermark": [0, 0]}


def test_a_batch_has_none() -> None:
    assert parse_options(OPTIONS, OptionScope.STREAM).watermark_column
    with pytest.raises(OptionError, match="watermarkColumn: has no meaning for a batch: it has no watermark"):
        parse_options(OPTIONS, OptionScope.BATCH)
