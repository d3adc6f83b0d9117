"""What the controller has written and what it has read of a partition: the later one counts, by the version of the node."""

from moldau.cluster.controller.image import TopicImage
from moldau.cluster.queries import FoundState
from moldau.cluster.znodes import PartitionState

STATE = PartitionState(1, 4, (1, 2), 1, 7)


def test_a_write_counts_by_the_version_it_was_made_for() -> None:
    """Claim: two writes of the same state, the answers of both of which were lost, are one. The second is found written by the first."""
    topic = TopicImage("t", bytes(16), [(1, 2)], 0)
    topic.put(0, STATE, 5)
    first, second = (topic.next(0, STATE._replace(leader=2, leader_epoch=5)) for _ in range(2))
    assert [topic.change(0, each).version for each in (first, second)] == [5, 5]
    for each in (first, second):
        topic.take(0, each)
    assert (topic.info(0).leader, topic.info(0).state_version) == (2, 6)


def test_the_answer_to_a_write_takes_nothing_later_back() -> None:
    """Claim: what the new leader has written since, and the controller has read already, stays."""
    topic = TopicImage("t", bytes(16), [(1, 2)], 0)
    topic.put(0, STATE, 5)
    written = topic.next(0, STATE._replace(leader=2, leader_epoch=5, isr=(2,)))
    topic.take(0, FoundState(written.state._replace(isr=(2, 1)), 7))
    topic.take(0, written)
    assert (topic.info(0).isr, topic.info(0).state_version) == ((2, 1), 7)
