"""The options of format=avro: each is understood or refused by name, and so are two that exclude each other."""

import pytest

from moldau.lake.reading.offsets import OptionError
from moldau.lake.reading.options import DEAD_LETTERS, FAILFAST, PERMISSIVE, AvroOptions, OptionScope, parse_options


def parse(**options: str) -> AvroOptions | None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", **options}
    if "subscribePattern" in options:
        del given["subscribe"]
    return parse_options({name.lower(): value for name, value in given.items()}, OptionScope.EITHER).avro


def test_values_are_bytes_unless_told_otherwise() -> None:
    assert parse() is None
    assert parse(format="bytes") is None


def test_what_is_told() -> None:
    plain = parse(format="AVRO", registry=" http://r:8081 ")
    assert plain == AvroOptions("http://r:8081", "a-value", None, FAILFAST, None, ())
    assert parse(format="avro", registry="r:1", subject="s", mode="permissive") == AvroOptions("r:1", "s", None, PERMISSIVE, None, ())
    beside = parse(format="avro", registry="r:1", readerSchema='"int"', deadLetterPath="/d", kafkaColumns="_offset, key,topic")
    assert beside == AvroOptions("r:1", None, '"int"', DEAD_LETTERS, "/d", ("topic", "offset", "key"))
    third = parse(format="protobuf", registry="r:1", subjectVersion="3")
    assert third is not None
    assert (third.subject, third.version) == ("a-value", 3)
    usual = parse(format="avro", registry="r:1", kafkaColumns="true")
    assert usual is not None
    assert usual.record_columns == ("topic", "partition", "offset", "timestamp", "key")
    assert parse(format="avro", registry="r:1", subscribePattern="a.*", subject="s") is not None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "json"}, "option format: is bytes or avro or protobuf, not 'json'"),
        ({"registry": "r:1"}, "option registry: has no meaning without format=avro or format=protobuf"),
        ({"format": "avro", "registry": "r:1", "message": "M"}, "option message: has no meaning without format=protobuf"),
        ({"format": "protobuf", "registry": "r:1", "readerSchema": "x"}, "option readerSchema: has no meaning with format=protobuf"),
        (
            {"format": "avro", "registry": "r:1", "readerSchema": "x", "subjectVersion": "1"},
            "option subjectVersion: cannot be given together with readerSchema",
        ),
        ({"format": "avro", "registry": "r:1", "subjectVersion": "latest"}, "option subjectVersion: needs a whole number, not 'latest'"),
        ({"mode": "FAILFAST"}, "option mode: has no meaning without format=avro"),
        ({"format": "avro"}, "option registry: is needed for format=avro"),
        ({"format": "avro", "registry": "ftp://r"}, "option registry: 'ftp://r' is not a registry's URL"),
        ({"format": "avro", "registry": "r:1", "subscribe": "a,b"}, "option subject: or readerSchema is needed: more than one topic"),
        ({"format": "avro", "registry": "r:1", "subscribePattern": "a"}, "option subject: or readerSchema is needed"),
        (
            {"format": "avro", "registry": "r:1", "subject": "s", "readerSchema": "x"},
            "option readerSchema: cannot be given together with subj",
        ),
        ({"format": "avro", "registry": "r:1", "mode": "DROPMALFORMED"}, "option mode: is FAILFAST or PERMISSIVE, not 'DROPMALFORMED'"),
        (
            {"format": "avro", "registry": "r:1", "mode": "FAILFAST", "deadLetterPath": "/d"},
            "option deadLetterPath: cannot be given together w",
        ),
        ({"format": "avro", "registry": "r:1", "deadLetterPath": " "}, "option deadLetterPath: is empty"),
        ({"format": "avro", "registry": "r:1", "kafkaColumns": "value"}, "option kafkaColumns: is true, false or some of topic, partition"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(**given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("use", "given", "message"),
    [
        (OptionScope.BATCH, {"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger: has no meaning for a batch"),
        (OptionScope.STREAM, {"endingTimestamp": "5"}, "option endingTimestamp: has no meaning for a stream"),
        (
            OptionScope.STREAM,
            {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            "option minOffsetsPerTrigger: is 6, more than max",
        ),
        (OptionScope.STREAM, {"maxTriggerDelay": "5m"}, "option maxTriggerDelay: has no meaning without minOffsetsPerTrigger"),
        (OptionScope.STREAM, {"minOffsetsPerTrigger": "6", "maxTriggerDelay": "soon"}, "option maxTriggerDelay: needs a time such as 15m"),
    ],
)
def test_a_stream_and_a_batch_have_options_of_their_own(use: OptionScope, given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_options({"kafka.bootstrap.servers": "h:1", "subscribe": "a", **given}, use)
    assert message in str(refused.value)


def test_a_time_as_spark_writes_it() -> None:
    for text, expected in {"15m": 900_000, "90 s": 90_000, "500ms": 500, "2h": 7_200_000, "1d": 86_400_000, "250": 250}.items():
        given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "minOffsetsPerTrigger": "1", "maxTriggerDelay": text}
        assert parse_options(given, OptionScope.STREAM).max_trigger_delay_ms == expected
