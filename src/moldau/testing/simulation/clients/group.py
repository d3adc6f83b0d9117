"""Membership of consumers in a group: `wire.group` with Kafka's consumer protocol, eager or cooperative.

What members say of themselves and are assigned is Kafka's consumer protocol, with range assignment. Numbers are big-endian, texts an int16
length and UTF-8::

    subscription: version, topics, user data, from 1: owned partitions, from 2: generation (int32), from 3: rack
    assignment:   version, partitions by topic, user data
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct

from moldau.client.groups import assigned_partitions, subscribed_topics
from moldau.model.identity import TopicPartition
from moldau.wire.brokers import Brokers
from moldau.wire.group import Membership, commit_offsets

_INT16, _INT32 = Struct(">h"), Struct(">i")
_VERSION = 2
_NO_USER_DATA = _INT32.pack(-1)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants, and what it has."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    """Of the assignment that gave it what it has."""

    def encode(self) -> bytes:
        """As the metadata of a JoinGroup."""
        names = b"".join(map(_text, self.topics))
        head = _INT16.pack(_VERSION) + _INT32.pack(len(self.topics)) + names + _NO_USER_DATA
        return head + _partitions(self.owned) + _INT32.pack(self.generation_id)

    @staticmethod
    def decode(data: bytes) -> "Subscription":
        """What a member of ours has sent."""
        topics = subscribed_topics(data) or ()
        at = 6 + sum(len(_text(name)) for name in topics) + len(_NO_USER_DATA)
        owned = assigned_partitions(data[:2] + data[at:-4]) or ()
        return Subscription(topics, owned, _INT32.unpack_from(data, len(data) - 4)[0])


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """As an assignment of a SyncGroup."""
    return _INT16.pack(_VERSION) + _partitions(partitions) + _NO_USER_DATA


def range_assignment(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Of each topic's partitions each member gets a range, the first ones by member id one more where they do not divide."""
    found: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    for topic, count in sorted(counts.items()):
        takers = [member for member in found if topic in members[member].topics]
        start = 0
        for place, member in enumerate(takers):
            size = count // len(takers) + (place < count % len(takers))
            found[member] += [TopicPartition(topic, number) for number in range(start, start + size)]
            start += size
    return found


def cooperative_assignment(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """The same without what another member still has: that one revokes it first, and the next generation gives it away.

    Of two members that say they have a partition the one of the later generation has it; of one generation none has.
    """
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for member, subscription in sorted(members.items()):
        for partition in subscription.owned:
            generation_id, other = owners.get(partition, (-2, ""))
            if subscription.generation_id == generation_id and other:
                owners[partition] = generation_id, ""
            elif subscription.generation_id > generation_id:
                owners[partition] = subscription.generation_id, member
    target = range_assignment(members, counts)
    return {
        member: [partition for partition in partitions if owners.get(partition, (0, ""))[1] in ("", member)]
        for member, partitions in target.items()
    }


def _text(name: str) -> bytes:
    encoded = name.encode()
    return _INT16.pack(len(encoded)) + encoded


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    entries = (_text(topic) + _INT32.pack(len(numbers)) + b"".join(map(_INT32.pack, numbers)) for topic, numbers in topics.items())
    return _INT32.pack(len(topics)) + b"".join(entries)


PROTOCOL_TYPE = "consumer"
COOPERATIVE = "cooperative-sticky"
RANGE = "range"


class ConsumerSharing:
    """A :class:`moldau.wire.group.Sharing` of consumers."""

    protocol_type = PROTOCOL_TYPE

    def __init__(self, brokers: Brokers, name: str) -> None:
        self.name = name
        self._brokers = brokers

    async def assign(self, members: Mapping[str, bytes]) -> dict[str, bytes]:
        """Partitions of the topics that members subscribe to."""
        subscriptions = {member: Subscription.decode(said) for member, said in members.items()}
        counts: dict[str, int] = {}
        for topic in sorted({topic for subscription in subscriptions.values() for topic in subscription.topics}):
            self._brokers.forget_topic(topic)
            counts[topic] = len((await self._brokers.topic(topic)).leaders)
        assign = cooperative_assignment if self.name == COOPERATIVE else range_assignment
        return {member: encode_assignment(mine) for member, mine in assign(subscriptions, counts).items()}


class SimulatedMembership(Membership):
    """Membership of a consumer: eager or cooperative."""

    def __init__(
        self,
        brokers: Brokers,
        group_id: str,
        topics: tuple[str, ...],
        *,
        assignor: str = RANGE,
        instance_id: str | None = None,
        **timing: float,
    ) -> None:
        super().__init__(brokers, group_id, ConsumerSharing(brokers, assignor), instance_id=instance_id, **timing)
        self.topics = topics
        self.is_cooperative = assignor == COOPERATIVE
        """Whether partitions that stay are kept through a rebalance."""

    async def join(self, owned: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Join, with what this member has; what it is assigned. Errors as of `rejoin`."""
        owned_now = () if self.is_lost else tuple(sorted(owned))
        subscription = Subscription(self.topics, owned_now, self.metadata.generation_id)
        return assigned_partitions(await self.rejoin(subscription.encode())) or ()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the group's offsets. PeerError, RequestLostError: then it may have happened."""
        await commit_offsets(self._brokers, self.metadata, offsets, self.check)
