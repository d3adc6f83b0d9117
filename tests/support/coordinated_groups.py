"""A coordinator of groups over a list in place of its topic.

one = Coordinated().lead()
one.commit("g", 5); one.offset("g")          # in partition 0 of the topic "t"
other = Coordinated(one.log).lead()          # goes on with the same list
"""

from collections.abc import Sequence

from moldau.broker.admission.state import StateBudgets
from moldau.broker.coordinators.state_log import KeyValue, TransactionalProducer
from moldau.broker.groups.coordinator import GroupCoordinator
from moldau.broker.groups.offsets import NO_TOPIC_ID, Commit, CommittedOffset
from moldau.broker.groups.records import offset_key, offset_value
from moldau.model.config import BrokerConfig, read_static
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps
from moldau.testing.clock import FakeClock
from support.state_logs import ListStateLog

PARTITIONS = 3
EPOCH = 1


class Coordinated:
    """A coordinator over a list."""

    def __init__(self, log: ListStateLog | None = None, **settings: int) -> None:
        """`settings`: of the broker, with underscores for dots."""
        self.clock = FakeClock()
        self.topic_ids: dict[str, bytes] = {}
        self.log = log or ListStateLog(PARTITIONS)
        self.log.clock = self.clock
        config = BrokerConfig(read_static(settings=[f"{name.replace('_', '.')}={value}" for name, value in settings.items()]))
        self.config = config
        self.groups = GroupCoordinator(self.log, self.clock, config, StateBudgets(config, self.clock.monotonic), lambda count: bytes(count))

    def lead(self, partitions: Sequence[int] = range(PARTITIONS)) -> "Coordinated":
        """Become the coordinator, and read."""
        for partition in partitions:
            self.groups.become_coordinator(partition, EPOCH)
        self.clock.settle()
        return self

    def write(self, group: str, *records: KeyValue, producer: TransactionalProducer | None = None) -> None:
        """What an earlier coordinator left."""
        self.log.append(self.log.partition_for(group), records, lambda _: None, producer)

    def commit(
        self, group: str, offset: int, producer: TransactionalProducer | None = None, *, partition: int = 0, metadata: str = ""
    ) -> ErrorCode:
        """Commit, and how it ended."""
        try:
            found = self.groups.group_for(group, create=True)
        except PeerError as refusal:
            return refusal.code
        assert found is not None
        outcomes: list[PeerError | None] = []
        self.groups.commit(found, [Commit("t", partition, offset, -1, metadata, NO_TOPIC_ID)], outcomes.append, producer=producer)
        (error,) = outcomes
        return ErrorCode.NONE if error is None else error.code

    def forget_topics(self, names: Sequence[str]) -> Steps:
        """The steps that remove what is committed in deleted topics, one partition after the other; `topic_ids` are there again."""
        for steps in self.groups.forget_topics(names, self.topic_ids.get):
            yield from steps

    def offset(self, group: str, partition: int = 0) -> int | None:
        """What is committed."""
        found = self.groups.group_for(group)
        committed = None if found is None else found.offsets.get("t", partition)
        return None if committed is None else committed.offset

    def is_pending(self, group: str, partition: int = 0) -> bool:
        """Whether a transaction is about to change it."""
        found = self.groups.group_for(group)
        return found is not None and found.offsets.is_pending("t", partition)

    def refusal(self, group: str) -> ErrorCode:
        """Why it is not this coordinator that is to be asked."""
        try:
            self.groups.group_for(group)
        except PeerError as error:
            return error.code
        return ErrorCode.NONE


def committed(group: str, offset: int) -> KeyValue:
    """The record of an offset."""
    return offset_key(group, "t", 0), offset_value(CommittedOffset(offset, -1, "", 0, -1, NO_TOPIC_ID, 0))
