"""Options of the sink: what is not known, or makes no sense together, is refused by name before anything is written."""

import pytest
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, LongType, MapType, StringType, StructType, TimestampType

from moldau.lake.reading.offsets import OptionError
from moldau.lake.writing.encoding import ColumnError, layout
from moldau.lake.writing.options import NAMES, parse_write_options
from moldau.protocol.records.compression import Compression

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
PLAIN = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


def frame(**columns: DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    return schema


def test_what_holds_if_nothing_is_said() -> None:
    options = parse_write_options(PLAIN, streaming=False)
    assert (options.acks, options.compression, options.include_headers, options.transactions) == (-1, Compression.NONE, True, None)


def test_names_in_any_case_and_those_of_kafka() -> None:
    given = {"KAFKA.bootstrap.servers": "h:1", "kafka.acks": "1", "kafka.compression.type": "LZ4", "includeheaders": "False"}
    options = parse_write_options(given, streaming=True)
    assert (options.acks, options.compression, options.include_headers, options.topic) == (1, Compression.LZ4, False, None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"topics": "t"}, "option topics: is not known; is topic meant"),
        ({"kafka.linger.ms": "5"}, "option kafka.linger.ms: is not known"),
        ({"path": "t"}, "option path: there is no path to write to"),
        ({"topic": " "}, "option topic: is empty"),
        ({"acks": "0"}, "option acks: is all or -1 or 1, not '0'"),
        ({"acks": "1", "kafka.acks": "1"}, "cannot be given together"),
        ({"compression": "brotli"}, "option compression: is none or gzip"),
        ({"kafka.batch.size": "0"}, "option kafka.batch.size: needs at least 1"),
        ({"transactional": "yes"}, "option transactional: is true or false"),
        ({"transactionTimeout": "5m"}, "option transactionTimeout: has no meaning without transactional=true"),
        ({"batchId": "5"}, "option batchId: has no meaning without transactional=true"),
        ({"transactional": "true", "acks": "1"}, "option acks: is all with transactional=true"),
        ({"transactional": "true", "queryName": "q"}, "option batchId: is needed with queryName"),
        ({"transactional": "true", "batchId": "1"}, "option queryName: is needed with batchId"),
        ({"transactional": "true", "queryRun": "r"}, "option queryName: is needed with queryRun"),
        ({"queryRun": "r"}, "option queryRun: has no meaning without transactional=true"),
        ({"transactional": "true", "queryName": "q" * 201, "batchId": "1"}, "option queryName: has at most 200 bytes"),
        ({"transactional": "true", "lostBatch": "7"}, "option lostBatch: is the number of a batch followed by :skip or :again"),
        ({"transactional": "true", "transactionTimeout": "soon"}, "option transactionTimeout: needs a time such as"),
    ],
)  # fmt: skip
def test_what_is_refused(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_write_options(PLAIN | more, streaming=False)
    assert str(caught.value).startswith(message) or message in str(caught.value)


def test_a_batch_without_a_name_has_one_that_nobody_has() -> None:
    queries = set()
    for _ in range(2):
        how = parse_write_options(PLAIN | {"transactional": "true"}, streaming=False).transactions
        assert how is not None
        assert not how.named
        queries.add(how.query)
    assert len(queries) == 2


def test_a_stream_is_known_by_its_name_or_its_checkpoint() -> None:
    """Spark hands both on to the sink; they are the same after a restart."""
    stream = PLAIN | {"transactional": "true"}
    how = parse_write_options(stream | {"queryName": "q", "checkpointLocation": "/c"}, streaming=True).transactions
    assert how is not None
    assert how.query == "q"
    first, second, other = (
        parse_write_options(stream | {"checkpointLocation": path}, streaming=True).transactions for path in ("/c", "/c/", "/d")
    )
    assert first is not None
    assert first == second != other
    with pytest.raises(OptionError, match="option queryName: is needed for transactional=true"):
        parse_write_options(stream, streaming=True)
    with pytest.raises(OptionError, match="option batchId: is Spark's own in a stream"):
        parse_write_options(stream | {"batchId": "1", "queryName": "q"}, streaming=True)


def test_a_stream_that_is_not_transactional_may_have_a_name_and_a_checkpoint() -> None:
    assert parse_write_options(PLAIN | {"queryName": "q", "checkpointLocation": "/c"}, streaming=True).transactions is None


def test_every_option_is_named_once() -> None:
    assert len({name.lower() for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (frame(key=BinaryType()), "a column value (string or binary) is needed; there are key"),
        (frame(), "a column value (string or binary) is needed; there are none"),
        (frame(value=IntegerType()), "column value is string or binary, not int"),
        (frame(value=BinaryType(), key=IntegerType()), "column key is string or binary, not int"),
        (frame(value=BinaryType(), partition=LongType()), "column partition is int, not bigint"),
        (frame(value=BinaryType(), topic=BinaryType()), "column topic is string, not binary"),
        (
            frame(value=BinaryType(), headers=MapType(StringType(), BinaryType())),
            "column headers is array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_columns_that_cannot_be_meant(columns: StructType, message: str) -> None:
    with pytest.raises(ColumnError) as caught:
        layout(columns, parse_write_options(PLAIN, streaming=False))
    assert str(caught.value).startswith(message)


def test_where_the_topic_comes_from() -> None:
    """The option is stronger than the column, as with the connector; one of them is needed."""
    bare = parse_write_options({"kafka.bootstrap.servers": "h:1"}, streaming=False)
    schema = frame(value=StringType(), topic=StringType())
    assert layout(schema, bare).topic is None
    assert layout(schema, parse_write_options(PLAIN, streaming=False)).topic == "t"
    with pytest.raises(ColumnError, match="a topic is needed"):
        layout(frame(value=StringType()), bare)


def test_headers_can_be_left_out_and_other_columns_are_left_alone() -> None:
    schema = frame(offset=LongType(), value=StringType(), headers=HEADERS, timestamp=TimestampType())
    assert layout(schema, parse_write_options(PLAIN, streaming=False)).positions == {"value": 1, "headers": 2}
    assert layout(schema, parse_write_options(PLAIN | {"includeHeaders": "false"}, streaming=False)).positions == {"value": 1}
