"""The options of the data source mean what they mean to Spark's Kafka connector, and nothing that is wrong passes unnoticed."""

import pytest

from moldau.client.partition_requests import READ_COMMITTED, READ_UNCOMMITTED
from moldau.lake.reading.offsets import EARLIEST, LATEST, Offsets, OptionError, PartitionEdge, Times
from moldau.lake.reading.options import PartitionAssignment, Pattern, ReadOptions, TopicNames, parse_options
from moldau.model.identity import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def parse(**options: str) -> ReadOptions:
    """Options with a broker, names in lower case as Spark hands them over."""
    return parse_options({"kafka.bootstrap.servers": "h:1", **{name.lower(): value for name, value in options.items()}})


def test_defaults_are_those_of_a_batch() -> None:
    options = parse(subscribe="a")
    assert options.subscription == TopicNames(("a",))
    assert (options.starting, options.ending) == (PartitionEdge(EARLIEST), PartitionEdge(LATEST))
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.min_partitions is None


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"subscribe": "a, b,a"}, "subscription", TopicNames(("a", "b"))),
        ({"subscribePattern": "a.*"}, "subscription", Pattern("a.*")),
        ({"assign": '{"a":[1,0]}'}, "subscription", PartitionAssignment((A0, A1))),
        ({"subscribe": "a", "startingOffsets": "earliest"}, "starting", PartitionEdge(EARLIEST)),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":7,"1":-2}}'}, "starting", Offsets({A0: 7, A1: EARLIEST})),
        ({"subscribe": "a", "endingOffsets": '{"a":{"0":7,"1":-1}}'}, "ending", Offsets({A0: 7, A1: LATEST})),
        ({"subscribe": "a", "startingTimestamp": "5"}, "starting", Times(5, or_latest=False)),
        ({"subscribe": "a", "endingTimestamp": "5"}, "ending", Times(5, or_latest=True)),
        (
            {"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":1}}', "startingOffsetsByTimestampStrategy": "latest"},
            "starting",
            Times({A0: 1}, or_latest=True),
        ),
        ({"subscribe": "a", "endingOffsetsByTimestamp": '{"a":{"0":1}}'}, "ending", Times({A0: 1}, or_latest=True)),
        ({"subscribe": "a", "minPartitions": "8"}, "min_partitions", 8),
        ({"subscribe": "a", "maxRecordsPerPartition": "8"}, "max_records_per_partition", 8),
        ({"subscribe": "a", "maxBytesPerFetch": "8"}, "max_bytes_per_fetch", 8),
        ({"subscribe": "a", "kafkaConsumer.pollTimeoutMs": "8"}, "poll_timeout_ms", 8),
        ({"subscribe": "a", "includeHeaders": "TRUE"}, "include_headers", True),
        ({"subscribe": "a", "failOnDataLoss": "false"}, "fail_on_data_loss", False),
        ({"subscribe": "a", "kafka.client.id": "me"}, "client_id", "me"),
        ({"subscribe": "a", "groupId": "g"}, "group_id", "g"),
        ({"subscribe": "a", "kafka.group.id": "g"}, "group_id", "g"),
        ({"subscribe": "a", "isolationLevel": "Read_Committed"}, "isolation_level", READ_COMMITTED),
        ({"subscribe": "a", "kafka.isolation.level": "read_committed"}, "isolation_level", READ_COMMITTED),
        ({"subscribe": "a"}, "isolation_level", READ_UNCOMMITTED),
    ],
)
def test_an_option_is_understood(given: dict[str, str], field: str, expected: object) -> None:
    assert getattr(parse(**given), field) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a", "isolationLevel": "serializable"}, "option isolationLevel: is read_committed or read_uncommitted"),
        ({"subscribe": "a", "groupId": " "}, "option groupId: is empty"),
        ({"subscribe": "a", "groupId": "g", "kafka.group.id": "g"}, "option kafka.group.id: cannot be given together with groupId"),
        ({}, "option subscribe: or subscribePattern or assign is needed"),
        ({"subscribe": " , "}, "option subscribe: names no topic"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "option assign: cannot be given together with subscribe"),
        ({"subscribe": "a", "endingOffset": "latest"}, "option endingoffset: is not known; is endingOffsets meant?"),
        ({"subscribe": "a", "kafka.security.protocol": "SSL"}, "option kafka.security.protocol: is not known; there are kafka.boot"),
        ({"subscribe": "a", "path": "a"}, "option path: there is no path to read"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "option startingOffsets: 'latest' would leave nothing to read"),
        ({"subscribe": "a", "startingOffsets": "latests"}, "option startingOffsets: is earliest, latest or JSON by topic"),
        ({"subscribe": "a", "endingOffsets": "7"}, "option endingOffsets: is earliest, latest or JSON by topic and partition, not '7'"),
        ({"subscribe": "a", "endingOffsets": '{"a":'}, "option endingOffsets: is not JSON: Expecting value"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "option endingOffsets: 'earliest' would leave nothing to read"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'}, "option startingOffsets: a-0 has -1 (latest)"),
        ({"subscribe": "a", "endingOffsets": '{"a":{"0":-2}}'}, "option endingOffsets: a-0 has -2 (earliest)"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "option startingOffsets: a-0 has -3; the least is -2"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"x":1}}'}, "option startingOffsets: 'x' is not a partition of topic 'a'"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":"1"}}'}, 'option startingOffsets: a-0 needs a whole number, not "1"'),
        ({"subscribe": "a", "startingOffsets": '{"a":[0]}'}, "option startingOffsets: topic 'a' needs an object"),
        ({"subscribe": "a", "startingOffsets": "{"}, "option startingOffsets: is not JSON"),
        ({"subscribe": "a", "startingOffsets": "[]"}, "option startingOffsets: needs a JSON object"),
        ({"subscribe": "a", "startingTimestamp": "1", "startingOffsets": "earliest"}, "option startingTimestamp: cannot be given together"),
        ({"subscribe": "a", "endingTimestamp": "1", "endingOffsetsByTimestamp": "{}"}, "option endingOffsetsByTimestamp: cannot be given"),
        ({"subscribe": "a", "startingTimestamp": "-1"}, "option startingTimestamp: needs at least 0, not -1"),
        (
            {"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":-1}}'},
            "option startingOffsetsByTimestamp: a-0 has -1; the least is 0",
        ),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "latest"}, "option startingOffsetsByTimestampStrategy: has no meaning"),
        ({"subscribe": "a", "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "x"}, "Strategy: is error or latest, not 'x'"),
        ({"subscribe": "a", "minPartitions": "0"}, "option minPartitions: needs at least 1, not 0"),
        ({"subscribe": "a", "minPartitions": "many"}, "option minPartitions: needs a whole number, not 'many'"),
        ({"subscribe": "a", "includeHeaders": "yes"}, "option includeHeaders: is true or false, not 'yes'"),
        ({"subscribePattern": "("}, "option subscribePattern: is not a regular expression"),
        ({"assign": "{}"}, "option assign: names no partition"),
        ({"assign": '{"a":[0,0]}'}, "option assign: names a partition twice"),
        ({"assign": '{"a":[-1]}'}, "option assign: topic 'a' needs a list of partitions"),
        ({"subscribe": "a", "kafka.bootstrap.servers": " "}, "option kafka.bootstrap.servers: is needed"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(**given)
    assert message in str(refused.value)
    assert refused.value.name in message or message.startswith("Strategy")
