"""Publishing is resumed partition by partition: whatever prefix of its lines each partition has, the next run adds exactly the rest."""

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.lake.checksum import Tally, event_hash, line_of
from moldau.lake.cluster_log import ClusterLog
from moldau.lake.demo.inputs import BadLine, Event
from moldau.lake.demo.partitioning import Partitioner
from moldau.lake.demo.publish import PublishError, ensure_topic, lines_done, publish
from moldau.lake.offsets import OffsetRange
from moldau.lake.reading import RangeRead, ReadRules
from moldau.model.identity import TopicPartition
from moldau.testing.broker import Broker

pytestmark = pytest.mark.system

PARTITIONS = 4
LINES = 120


def lines(count: int = LINES) -> list[Event | BadLine]:
    """Events of a few keys and of none, and some bad lines; the numbers have gaps, as a file with blank lines has."""
    draw = random.Random(7)
    made: list[Event | BadLine] = []
    for number in range(2, 2 * count + 2, 2):
        if number % 34 == 0:
            made.append(BadLine(number, b"torn %d" % number, "not JSON"))
        else:
            key = None if number % 10 == 0 else f"w{draw.randrange(9)}"
            made.append(Event(number, key, 1_000 * number, b'{"n":%d}' % number))
    return made


def split(items: Sequence[Event | BadLine]) -> list[list[Event | BadLine]]:
    """The lines that belong to each partition."""
    partitioner = Partitioner(PARTITIONS)
    by_partition: list[list[Event | BadLine]] = [[] for _ in range(PARTITIONS)]
    for item in items:
        by_partition[partitioner.partition(item.key if isinstance(item, Event) else None, item.line)].append(item)
    return by_partition


def content(broker: Broker, topic: str) -> Iterator[tuple[int, int, bytes]]:
    """Partition, line and payload of each record, in order."""
    with ClusterLog(broker.bootstrap_servers, "test") as log:
        for number in range(PARTITIONS):
            end = log.bounds(TopicPartition(topic, number))[1]
            for columns in RangeRead(log, OffsetRange(topic, number, 0, end), ReadRules(wanted=("value", "headers"))):
                assert columns.value is not None
                assert columns.headers is not None
                for headers, value in zip(columns.headers.to_pylist(), columns.value.to_pylist(), strict=True):
                    line = line_of(headers)
                    assert line is not None
                    yield number, line, value


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(0, 1), min_size=PARTITIONS, max_size=PARTITIONS))
def test_any_prefixes_are_completed(moldau: Broker, shares: list[float]) -> None:
    topic = moldau.unique_topic("publish")
    items = lines()
    by_partition = split(items)
    landed = {id(item) for part, share in zip(by_partition, shares, strict=True) for item in part[: int(share * len(part))]}
    ensure_topic(moldau.bootstrap_servers, topic, PARTITIONS)
    ensure_topic(moldau.bootstrap_servers, topic, PARTITIONS)
    publish(moldau.bootstrap_servers, topic, PARTITIONS, [item for item in items if id(item) in landed])
    result = publish(moldau.bootstrap_servers, topic, PARTITIONS, items)
    assert result.sent == LINES - len(landed)
    assert result.all.events == LINES
    found = list(content(moldau, topic))
    payloads = {item.line: item.payload if isinstance(item, Event) else item.raw for item in items}
    assert found == [(number, item.line, payloads[item.line]) for number, part in enumerate(by_partition) for item in part]
    assert result.all == Tally(LINES, LINES, sum(event_hash(line, payload) for _, line, payload in found) % (1 << 64))
    assert lines_done(moldau.bootstrap_servers, topic, PARTITIONS) == [part[-1].line for part in by_partition]
    moldau.delete_topic(topic)


def test_a_topic_that_is_not_ours_is_left_alone(moldau: Broker) -> None:
    from confluent_kafka import Producer

    topic = moldau.create_topic(moldau.unique_topic("foreign"), PARTITIONS)
    producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "log_level": 3})
    producer.produce(topic, b"foreign", partition=2)
    assert producer.flush(30) == 0
    with pytest.raises(PublishError, match=f"{topic}-2: the record at offset 0 has no header 'line'; it is not ours"):
        publish(moldau.bootstrap_servers, topic, PARTITIONS, lines())
    with pytest.raises(PublishError, match="has 4 partitions, not 5; use another --dir"):
        ensure_topic(moldau.bootstrap_servers, topic, 5)
