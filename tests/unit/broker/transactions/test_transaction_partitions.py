"""The partitions of a transaction are a set; however many there are, adding some encodes the topics of those alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.transactions import transaction as module
from moldau.broker.transactions.transaction import NO_PARTITIONS, partitions_of
from moldau.model.identity import TopicPartition
from support.transactions import TransactionWorld

sets = st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b", "topic-ä" * 40]), st.integers(0, 300)))


@given(sets, sets)
def test_it_is_a_set(some: frozenset[TopicPartition], others: frozenset[TopicPartition]) -> None:
    mine, added = partitions_of(some), partitions_of(others)
    both = mine | added
    assert set(both) == some | others
    assert len(both) == len(some | others)
    assert both == partitions_of(some | others) == added | mine
    assert set(mine.missing(others)) == others - some
    assert (both is mine) == (others <= some), "the same object where nothing is added"
    assert set(mine) == some, "a value that never changes"
    assert [each in mine for each in others] == [each in some for each in others]
    assert {TopicPartition(topic, number) for topic, numbers in mine.by_topic() for number in numbers} == some
    assert mine.encoded_bytes <= len(mine.encoded()) <= mine.encoded_bytes + 5


def test_none_are_an_empty_array() -> None:
    assert partitions_of([]) == NO_PARTITIONS
    assert NO_PARTITIONS.encoded() == b"\1"


def test_one_more_partition_encodes_its_topic_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    entry = module._entry

    def counted(topic: str, numbers: set[int]) -> bytes:
        encoded.append(topic)
        return entry(topic, numbers)

    world = TransactionWorld()
    world.init("app")
    world.add("app", 1000, 0, *(f"t{topic}-{number}" for topic in range(1000) for number in range(2)))
    monkeypatch.setattr(module, "_entry", counted)
    world.add("app", 1000, 0, "t7-2")
    assert set(encoded) == {"t7"}
    value = world.stored("app")[-1]
    assert value is not None
    assert len(value.partitions) == 2001
