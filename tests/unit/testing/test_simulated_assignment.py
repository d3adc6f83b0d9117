"""Members' subscriptions and assignments in Kafka's format, and who gets which partitions."""

from moldau.client.groups import assigned_partitions, subscribed_topics
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.group import (
    Subscription,
    cooperative_assignment,
    encode_assignment,
    range_assignment,
)


def partitions(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def test_a_subscription_and_an_assignment_come_back_from_their_bytes() -> None:
    owned = (*partitions("a", 0, 3), *partitions("b", 1))
    subscription = Subscription(("a", "b"), owned, 7)
    assert Subscription.decode(subscription.encode()) == subscription
    assert subscribed_topics(subscription.encode()) == ("a", "b")
    assert assigned_partitions(encode_assignment(owned)) == owned


def test_ranges_divide_each_topic_among_those_that_want_it() -> None:
    members = {"y": Subscription(("a", "b")), "x": Subscription(("a",)), "z": Subscription(("a", "b"))}
    assert range_assignment(members, {"a": 5, "b": 1}) == {
        "x": [*partitions("a", 0, 1)],
        "y": [*partitions("a", 2, 3), *partitions("b", 0)],
        "z": [*partitions("a", 4)],
    }


def test_a_cooperative_assignment_leaves_out_what_another_member_still_has() -> None:
    members = {"x": Subscription(("a",), partitions("a", 0, 1), 3), "y": Subscription(("a",))}
    assert cooperative_assignment(members, {"a": 2}) == {"x": [*partitions("a", 0)], "y": []}


def test_of_two_owners_the_one_of_the_later_generation_counts_and_of_one_generation_none() -> None:
    older, newer = Subscription(("a",), partitions("a", 0, 1), 3), Subscription(("a",), partitions("a", 0, 1), 4)
    assert cooperative_assignment({"x": older, "y": newer}, {"a": 2}) == {"x": [], "y": [*partitions("a", 1)]}
    assert cooperative_assignment({"x": older, "y": older}, {"a": 2}) == {"x": [*partitions("a", 0)], "y": [*partitions("a", 1)]}
