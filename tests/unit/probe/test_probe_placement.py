"""Each broker leads a partition of the canary topic, whatever brokers come, go and take over (mission J1)."""

import pytest

from moldau.client.metadata import PartitionMetadata
from moldau.model.errors import ErrorCode
from moldau.model.identity import BrokerId
from moldau.probe.placement import Change, needed, own_partitions


def partition(words: str) -> PartitionMetadata:
    """`0 led by 2 of 1,2 in 1 2`: number, leader, replicas, a word, those in sync."""
    number, _, _, leader, _, replicas, _, _, isr = words.split()
    ids = tuple(BrokerId(int(each)) for each in replicas.split(","))
    in_sync = tuple(BrokerId(int(each)) for each in isr.split(","))
    return PartitionMetadata(int(number), BrokerId(int(leader)), 0, ids, in_sync, (), ErrorCode.NONE)


@pytest.mark.parametrize(
    ("brokers", "partitions", "replicas", "change"),
    [
        # there is no topic yet: a partition for each, its replicas in turn
        ([1, 2, 3], [], 1, Change(((1,), (2,), (3,)), ())),
        ([3, 1, 2], [], 2, Change(((1, 2), (2, 3), (3, 1)), ())),
        ([1, 2], [], 3, Change(((1, 2), (2, 1)), ())),
        # all have one
        ([1, 2], ["0 led by 1 of 1 in 1 1", "1 led by 2 of 2 in 2 2"], 1, Change((), ())),
        # a broker has come
        ([1, 2, 3], ["0 led by 1 of 1 in 1 1", "1 led by 2 of 2 in 2 2"], 2, Change(((3, 1),), ())),
        # a broker is away: its partition stays
        ([1], ["0 led by 1 of 1 in 1 1", "1 led by -1 of 2 in 2 2"], 1, Change((), ())),
        # it is back and in sync, and another one leads its partition
        ([1, 2], ["0 led by 1 of 1,2 in 1 1,2", "1 led by 1 of 2,1 in 1 1,2"], 2, Change((), (1,))),
        # it is back, and not in sync yet
        ([1, 2], ["0 led by 1 of 1,2 in 1 1,2", "1 led by 1 of 2,1 in 1 1"], 2, Change((), ())),
        # its partition has moved to another broker
        ([1, 2], ["0 led by 1 of 1 in 1 1", "1 led by 1 of 1 in 1 1"], 1, Change(((2,),), ())),
    ],
)
def test_what_is_missing(brokers: list[int], partitions: list[str], replicas: int, change: Change) -> None:
    assert needed(brokers, [partition(each) for each in partitions], replicas) == change


def test_the_partition_of_a_broker_is_the_first_that_it_should_lead() -> None:
    partitions = ["2 led by 1 of 1 in 1 1", "0 led by 2 of 2 in 2 2", "1 led by 2 of 1,2 in 2 2"]
    assert own_partitions([partition(each) for each in partitions]) == {1: 1, 2: 0}
