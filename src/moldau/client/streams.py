"""Message streams: iterators that wait for more and never end, for as many threads as there are.

    with create_message_streams({"page-views": 2}, group_id="counters") as streams:
        for stream in streams["page-views"]:
            Thread(target=count, args=(stream,)).start()

    def count(stream):
        for message in stream:
            ...

The group's partitions are shared out among its members, and each member's among its streams; the order within a partition is kept. At
least once: a message is finished when the next one is asked of its stream, or by `MessageStream.finish`, and only what is finished is
committed. An exception in the loop finishes nothing: the next reader of the partition gets the message again.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack, overload

from moldau.client.failures import ClientError
from moldau.client.message import ConsumedMessage
from moldau.client.session import Session
from moldau.client.settings import CLOSE_TIMEOUT_MS, ConsumerOptions, checked_offset, consumer_settings
from moldau.client.stream_feeder import REVOKE_WAIT_S, StreamFeeder, StreamSource, log
from moldau.client.stream_queues import Lane, StreamQueues
from moldau.model.identity import TopicPartition

FETCH_WAIT_MS = 100
"""How long a stream that resumes after a pause may wait for a fetch that was sent before."""


def create_message_streams(
    topics: str | Mapping[str, int],
    streams: int = 1,
    *,
    group_id: str,
    bootstrap_servers: str | Sequence[str] = "localhost:9092",
    **options: Unpack[ConsumerOptions],
) -> "MessageStreams":
    """Streams for each topic: ``{"clicks": 2, "views": 1}``, or a topic and a number. Options as for `moldau.client.consumer.Consumer`.

    `auto_offset_reset`: a group that has committed nothing begins at the smallest or at the largest offset. `auto_commit` off leaves
    committing to `MessageStreams.commit`. ValueError for what cannot be meant.
    """
    made = {"fetch.wait.max.ms": FETCH_WAIT_MS} | consumer_settings(bootstrap_servers, group_id, options)
    wanted = streams_by_topic(topics, streams)
    session = Session(made, group_id, options.get("close_timeout_ms", CLOSE_TIMEOUT_MS) / 1000)
    return MessageStreams(wanted, session, patience_s=made["max.poll.interval.ms"] / 1000)


def streams_by_topic(topics: str | Mapping[str, int], streams: int) -> dict[str, int]:
    """How many streams each topic gets. ValueError if one gets none."""
    wanted = {topics: streams} if isinstance(topics, str) else dict(topics)
    if not wanted or any(count < 1 for count in wanted.values()):
        raise ValueError(f"each topic needs at least one stream, not {wanted}")
    return wanted


class MessageStream:
    """One stream of one topic, for one thread at a time. It ends only when the streams are closed."""

    def __init__(self, lane: Lane, queues: StreamQueues, feeder: StreamFeeder) -> None:
        self.topic = lane.topic
        self._lane = lane
        self._queues = queues
        self._feeder = feeder

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """The messages of its partitions; where there are none, it waits."""
        return self

    def __next__(self) -> ConsumedMessage:
        message = self.poll()
        if message is None:
            raise StopIteration
        return message

    def poll(self, timeout: float | None = None) -> ConsumedMessage | None:
        """The next message; None if none comes within `timeout` seconds, or when the streams are closed. The one before is finished.

        ClientError where the group or its partitions can no longer be read.
        """
        message = self._queues.take(self._lane, timeout, lambda: self._feeder.ended)
        if message is None and self._feeder.error is not None:
            raise self._feeder.error
        return message

    def finish(self) -> None:
        """The message that was handed out last is done, without asking for another."""
        self._queues.finish(self._lane)

    def partitions(self) -> list[TopicPartition]:
        """The partitions that it has now."""
        with self._queues.lock:
            return sorted(self._lane.partitions)


class MessageStreams:
    """The streams of some topics, by topic and all in order; fed from `source` by a thread of their own until they are closed.

    A stream that has messages and is not polled for `patience_s` is logged. A partition that goes to another member
    waits `revoke_wait_s` for the message that is worked on.
    """

    def __init__(
        self, streams: Mapping[str, int], source: StreamSource, *, patience_s: float = 300.0, revoke_wait_s: float = REVOKE_WAIT_S
    ) -> None:
        self._source = source
        self._queues = StreamQueues(streams)
        self._feeder = StreamFeeder(source, self._queues, patience_s=patience_s, revoke_wait_s=revoke_wait_s)
        self._streams = {
            topic: [MessageStream(lane, self._queues, self._feeder) for lane in lanes] for topic, lanes in self._queues.lanes.items()
        }
        self._feeder.start()

    @overload
    def __getitem__(self, key: str) -> list[MessageStream]: ...

    @overload
    def __getitem__(self, key: int) -> MessageStream: ...

    def __getitem__(self, key: str | int) -> list[MessageStream] | MessageStream:
        """The streams of a topic, or one of all by its number."""
        return list(self._streams[key]) if isinstance(key, str) else list(self)[key]

    def __iter__(self) -> Iterator[MessageStream]:
        """All streams, topic by topic."""
        return (stream for streams in self._streams.values() for stream in streams)

    def __len__(self) -> int:
        return sum(map(len, self._streams.values()))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are assigned now."""
        return {where for stream in self for where in stream.partitions()}

    def commit(self) -> None:
        """Commit what is finished now, and wait for it. CommitError names topic, partition and offset."""

        def command() -> None:
            self._source.commit(self._queues.finished())

        self._feeder.ask(command)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset of an assigned partition; a message of it that is not finished will not count.

        The group continues there too, if the streams commit by themselves. ValueError for a partition that is not assigned.
        """
        self._feeder.ask(lambda: self._move_all({partition: checked_offset(partition, offset)}))

    def seek_to_beginning(self) -> None:
        """Rewind all assigned partitions to their first offsets."""
        self._feeder.ask(lambda: self._move_all({where: self._source.bounds(where)[0] for where in self._source.assignment()}))

    def seek_to_end(self) -> None:
        """Skip all messages up to now."""
        self._feeder.ask(lambda: self._move_all({where: self._source.bounds(where)[1] for where in self._source.assignment()}))

    def seek_to_time(self, timestamp_ms: int) -> None:
        """Go to the first message of each partition that is not older, in ms since 1970; to the end where there is none."""

        def command() -> None:
            partitions = self._source.assignment()
            found = self._source.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
            self._move_all({where: found[where] if where in found else self._source.bounds(where)[1] for where in partitions})

        self._feeder.ask(command)

    def _move_all(self, offsets: Mapping[TopicPartition, int]) -> None:
        for where, offset in offsets.items():
            if where not in self._source.assignment():
                raise ValueError(f"partition {where} is not assigned to these streams")
            self._source.seek(where, offset)
            self._queues.move(where, offset)

    def close(self) -> None:
        """End the streams: loops over them end, what is finished is committed, the partitions go to other members.

        ClientError where that fails, a CommitError for what was not committed; once, and not from within a stream's loop that ended so.
        """
        self._feeder.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close. Where an exception is on its way already, a failure is logged."""
        try:
            self.close()
        except ClientError as failure:
            if error is None:
                raise
            log.warning("streams: while closing: %s", failure)
