"""Reading messages: as a member of a group, or partitions by assignment.

    with Consumer("localhost:9092", group_id="billing", topics=["orders"]) as consumer:
        for message in consumer:
            charge(message.value)

At least once: a message is finished when the next one is asked for, and only what is finished is committed, every few seconds, when a
partition goes to another member, and at the end. The last message is not finished by leaving the loop; `commit` finishes it. One thread
uses a consumer at a time; `create_message_streams` serves many.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from moldau.client.failures import ClientError
from moldau.client.message import ConsumedMessage
from moldau.client.reader import Listener, MessageReader
from moldau.client.session import BEGINNING, COMMITTED, END, Session, log
from moldau.client.settings import (
    CLOSE_TIMEOUT_MS,
    Assignor,
    ConsumerOptions,
    IsolationLevel,
    StartOffset,
    checked_offset,
    checked_partitions,
    consumer_settings,
    hiding_settings,
)
from moldau.model.identity import TopicPartition

_SMALLEST = ("smallest", "earliest")


class Consumer:
    """A consumer of the cluster that `bootstrap_servers` ("HOST:PORT", several by commas or in a list) belong to. It connects by itself.

    With `group_id` it shares `topics` with the other members; without, it reads what `assign` names and commits nothing.
    `auto_offset_reset`: where it begins if the group has committed nothing, or the offset is out of range. With `auto_commit` off only
    `commit`, or a producer's transaction, commits. `group_instance_id` names a static member, whose restart causes no rebalance.
    `isolation_level`: messages of aborted and open transactions are left out unless it is "read_uncommitted". `close` waits for brokers
    that do not answer for `close_timeout_ms`. `settings` are librdkafka's own. ValueError for invalid arguments.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        group_id: str | None = None,
        topics: Iterable[str] = (),
        client_id: str = "moldau",
        group_instance_id: str | None = None,
        auto_offset_reset: StartOffset = "smallest",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        isolation_level: IsolationLevel = "read_committed",
        assignor: Assignor | Sequence[Assignor] = ("range", "roundrobin"),
        session_timeout_ms: int = 45_000,
        max_poll_interval_ms: int = 300_000,
        close_timeout_ms: int = CLOSE_TIMEOUT_MS,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        options = ConsumerOptions(
            client_id=client_id,
            group_instance_id=group_instance_id,
            auto_offset_reset=auto_offset_reset,
            auto_commit=auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            isolation_level=isolation_level,
            assignor=assignor,
            session_timeout_ms=session_timeout_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            close_timeout_ms=close_timeout_ms,
            settings=settings,
        )
        wanted = _names(topics)
        self._made = consumer_settings(bootstrap_servers, group_id, options)
        self._hiding = hiding_settings(wanted)
        self._session = Session({**self._hiding, **self._made}, group_id, close_timeout_ms / 1000)
        self._reader = MessageReader(self._session)
        self._reset = auto_offset_reset
        self._began = False
        if wanted:
            self.subscribe(wanted)

    # What it reads

    def subscribe(self, topics: Iterable[str], *, on_assign: Listener | None = None, on_revoke: Listener | None = None) -> None:
        """Share these topics with the other members of the group; a name that begins with ^ is a pattern.

        A pattern leaves out internal topics, whose names begin with an underscore, unless it begins with ``^_`` itself. ValueError for
        patterns of a consumer that has read topics by name, and the other way round: librdkafka hides topics for good.
        The listeners are called with partitions that were assigned, and with those that are revoked or lost, from within `poll`,
        `unsubscribe` and `close`.
        """
        if self._session.group is None:
            raise ValueError("subscribe needs a group_id; without a group use assign")
        wanted = _names(topics)
        self._hide(hiding_settings(wanted))
        self._reader.on_assign, self._reader.on_revoke = on_assign, on_revoke
        self._began = True
        self._session.subscribe(wanted, self._reader)

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | Literal["smallest", "largest"]]) -> None:
        """Read these partitions, from these offsets if they are given; else from what the group has committed, or where one begins."""
        self._hide({})
        self._began = True
        if not isinstance(partitions, Mapping):
            start = COMMITTED if self._session.group is not None else BEGINNING if self._reset in _SMALLEST else END
            self._reader.start_over()
            self._session.assign(dict.fromkeys(checked_partitions("assign", partitions), start))
            return
        words = {"smallest": BEGINNING, "largest": END}
        offsets = {
            TopicPartition(*where): words[offset] if isinstance(offset, str) else checked_offset(where, offset)
            for where, offset in partitions.items()
        }
        self._reader.start_over()
        self._session.assign(offsets)

    def _hide(self, hiding: dict[str, str]) -> None:
        """Replace the session if it hides other topics than these, and has read nothing yet."""
        if hiding == self._hiding:
            return
        if self._began:
            raise ValueError("a consumer reads patterns, which leave out internal topics, or names: use another consumer")
        group, limit_s = self._session.group, self._session.close_timeout_s
        self._session.close(0.0)
        self._session = Session({**hiding, **self._made}, group, limit_s)
        self._reader, self._hiding = MessageReader(self._session), hiding

    def unsubscribe(self) -> None:
        """Leave the group, or release what was assigned; what was finished is committed. `assign` or `subscribe` may follow.

        The listener of revoked partitions is called before this returns. Called within a listener, it takes effect when that returns.
        Waits for the brokers as long as `close` does, then logs a warning: a rebalance that other members hold up has to end first, and
        until it does `poll` returns nothing and `assign` raises ConsumeError. Who was a member and reads by assignment then cannot commit
        (CommitError UNKNOWN_MEMBER_ID), nor assign where rebalances were cooperative (ConsumeError STATE): both take another consumer.
        """
        self._reader.store_finished()
        try:
            self._session.leave()
        finally:
            self._reader.start_over()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._session.assignment())

    # Messages

    def poll(self, timeout: float | None = None) -> ConsumedMessage | None:
        """The next message; None if there is none within `timeout` seconds. The one before is finished. ConsumeError."""
        found = self._reader.take(1, timeout)
        return found[0] if found else None

    def consume(self, count: int = 500, timeout: float | None = None) -> list[ConsumedMessage]:
        """At most `count` messages that are fetched; the first is waited for as with `poll`. Those before are finished."""
        return self._reader.take(count, timeout)

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """Messages for ever: where there are none, it waits."""
        return self

    def __next__(self) -> ConsumedMessage:
        message = self.poll()
        assert message is not None, "without a timeout there is a message"
        return message

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`."""
        checked_partitions("pause", partitions)
        self._session.pause(partitions)
        self._reader.hold_back(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue with these."""
        self._session.resume(checked_partitions("resume", partitions))

    # Offsets of the group

    def commit(self, offsets: Mapping[TopicPartition, int] | ConsumedMessage | None = None) -> None:
        """Commit now and wait for it: after everything handed out, the last message too; or after one message; or these offsets.

        CommitError names topic, partition and offset; it may be about an earlier automatic commit that failed.
        """
        self._check_group()
        if offsets is None:
            self._reader.progress.finish()
            offsets = self._reader.progress.positions()
        elif isinstance(offsets, ConsumedMessage):
            offsets = {TopicPartition(offsets.topic, offsets.partition): offsets.offset + 1}
        self._session.commit({where: checked_offset(where, offset) for where, offset in offsets.items()})
        if offsets:
            self._reader.progress.settle(offsets)

    def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """What the group has committed in these partitions, None: in those assigned; those without a commit are left out."""
        self._check_group()
        return dict(self._session.committed(self._session.assignment() if partitions is None else partitions))

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that messages were handed out of."""
        return self._reader.progress.positions()

    def position(self, partition: TopicPartition) -> int:
        """The offset that comes next in a partition that is assigned."""
        known = self._reader.progress.positions().get(partition)
        if known is None:
            known = self._session.committed([partition]).get(partition) if self._session.group is not None else None
        if known is not None:
            return known
        first, end = self._session.bounds(partition)
        return first if self._reset in _SMALLEST else end

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition is ahead of its position. What an open transaction holds back does not count."""
        return {where: max(0, self._session.bounds(where)[1] - self.position(where)) for where in self._session.assignment()}

    # Places in the log

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset of an assigned partition. The group continues there too, if this consumer commits by itself."""
        self._reader.seek(partition, checked_offset(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go back to the first offset, of all assigned partitions where none is named."""
        for where in checked_partitions("seek_to_beginning", partitions) or self._session.assignment():
            self._reader.seek(where, self._session.bounds(where)[0])

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last message, of all assigned partitions where none is named."""
        for where in checked_partitions("seek_to_end", partitions) or self._session.assignment():
            self._reader.seek(where, self._session.bounds(where)[1])

    def rewind(self) -> None:
        """Go back to what is committed or finished, or to where reading began: what was handed out since is read again."""
        self._reader.rewind()

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return {where: self._session.bounds(where)[0] for where in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last message of each partition that this consumer may see."""
        return {where: self._session.bounds(where)[1] for where in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset of each partition that is not older than a time in ms since 1970; None where no message is that young."""
        found = self._session.offsets_for_times(times)
        return {where: found.get(where) for where in times}

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has. ConsumeError if there is no such topic."""
        return self._session.partition_count(topic)

    # In a producer's transaction, and for asyncio

    @property
    def reader(self) -> MessageReader:
        """The buffer between this and librdkafka."""
        return self._reader

    def check_transactional(self) -> None:
        """ValueError for a consumer whose offsets a transaction cannot commit."""
        self._check_group()
        if self._session.commits_by_itself:
            raise ValueError(f"group {self._session.group}: a consumer in a transaction is made with auto_commit=False")

    def taken_away(self) -> set[TopicPartition]:
        """Partitions that went to another member with messages that were handed out and are not committed."""
        return set(self._reader.progress.taken_away)

    def group_metadata(self) -> Any:
        """Who this is in its group, for `Transaction.commit_offsets`."""
        return self._session.group_metadata()

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        """A transaction has committed these."""
        self._reader.progress.settle(offsets)

    def _check_group(self) -> None:
        if self._session.group is None:
            raise ValueError("commit needs a group_id")

    # The end

    def statistics(self) -> dict[str, int]:
        """Messages so far: `handed_out`, and `buffered` after them."""
        return {"handed_out": self._reader.handed_out, "buffered": self._reader.buffered}

    def close(self, timeout: float | None = None) -> None:
        """Commit what is finished, and leave the group; waits for that `timeout` seconds, None: as long as the consumer was made to.

        CommitError for what could not be committed, now or since the last `commit`, and for what is not known to be when time is up.
        """
        if not self._session.closed:
            self._reader.store_finished()
            self._session.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close. Where an exception is on its way already, a failure is logged."""
        try:
            self.close()
        except ClientError as failure:
            if error is None:
                raise
            log.warning("consumer: while closing: %s", failure)


def _names(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, str):
        raise ValueError(f"topics is a list: [{topics!r}]")
    return list(topics)
