"""What a broker learns of a partition from the tree counts until something later comes, and only where it is later."""

from moldau.cluster.snapshot import MetadataCache, MetadataSnapshot, PartitionInfo, TopicInfo

ID, OTHER = bytes(16), b"x" * 16
KNOWN = PartitionInfo(1, 1, 5, (1, 2), (1, 2, 3), 7)


def cache() -> MetadataCache:
    made = MetadataCache()
    first = KNOWN._replace(partition=0)
    made.snapshot = MetadataSnapshot("c", 2, topics={"t": TopicInfo("t", ID, (first, KNOWN))}, topic_configs={"t": {"a": "b"}})
    return made


def test_a_later_state_replaces_that_of_its_partition_alone() -> None:
    known = cache()
    before = known.snapshot
    known.learn(ID, 1, leader=2, leader_epoch=6, isr=(2,), state_version=8)
    read = KNOWN._replace(leader=2, leader_epoch=6, isr=(2,), state_version=8)
    assert known.snapshot.topics["t"].partitions == (before.topics["t"].partitions[0], read)
    assert known.snapshot.topics_by_id[ID] is known.snapshot.topics["t"]
    assert (known.snapshot.controller_id, known.snapshot.topic_config("t")) == (2, {"a": "b"})
    assert before.topics["t"].partitions[1] == KNOWN, "requests that have it see no half of a change"
    known.learn(ID, 1, leader=2, leader_epoch=6, isr=(2, 3), state_version=9)
    assert known.snapshot.topics["t"].partitions[1].isr == (2, 3)


def test_what_the_controller_sends_replaces_it_unless_it_is_from_before() -> None:
    """A message that was held up, or comes from a controller that has not read the state."""
    known = cache()
    sent = known.snapshot.topics["t"]
    assert known.with_learned(sent) is sent
    known.learn(ID, 1, leader=2, leader_epoch=6, isr=(2,), state_version=8)
    moved = TopicInfo("t", ID, (sent.partitions[0]._replace(leader=3, leader_epoch=9), KNOWN._replace(replicas=(1, 2, 4))))
    kept = known.with_learned(moved).partitions
    assert (kept[0].leader, kept[1].leader, kept[1].leader_epoch, kept[1].replicas) == (3, 2, 6, (1, 2, 4))
    later = TopicInfo("t", ID, (moved.partitions[0], KNOWN._replace(leader_epoch=6, state_version=8)))
    assert known.with_learned(later) is later
    assert known.with_learned(sent) is sent, "it is not needed any more"


def test_what_is_not_later_or_of_another_topic_changes_nothing() -> None:
    known = cache()
    before = known.snapshot
    for topic_id, index, epoch, version in ((ID, 1, 4, 9), (ID, 1, 5, 7), (ID, 2, 6, 8), (OTHER, 1, 6, 8)):
        known.learn(topic_id, index, leader=3, leader_epoch=epoch, isr=(3,), state_version=version)
    assert known.snapshot is before


def test_what_is_learned_of_one_partition_is_not_forgotten_when_another_is_learned_of() -> None:
    """A message of before that comes after both takes neither back."""
    known = cache()
    sent = known.snapshot.topics["t"]
    for index in (0, 1):
        known.learn(ID, index, leader=2, leader_epoch=6, isr=(2,), state_version=8)
    assert [each.leader_epoch for each in known.with_learned(sent).partitions] == [6, 6]


def test_what_was_learned_of_a_deleted_topic_is_forgotten() -> None:
    known = cache()
    sent = known.snapshot.topics["t"]
    known.learn(ID, 1, leader=2, leader_epoch=6, isr=(2,), state_version=8)
    known.forget(["u", "t"])
    assert known.with_learned(sent) is sent
