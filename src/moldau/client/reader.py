"""The buffer between librdkafka and a consumer: messages fetched and not yet handed out, and how far each partition is done.

A message is *handed out*; it is *finished* when the next one is asked for, or by a call; only what is finished may be
committed. *Settled* is where reading would start again: what was committed, or where it began.

::

    handed out ──next one asked for──▶ finished ──stored or committed──▶ settled
        ▲                                                                   │
        └───────────────────────────── rewind ──────────────────────────────┘

Messages come in batches, since asking librdkafka for each one costs ten times as much. A partition that goes to another member takes its
part of them with it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from moldau.client.message import ConsumedMessage
from moldau.client.session import Session
from moldau.model.identity import TopicPartition

Offsets = dict[TopicPartition, int]


class ReadProgress:
    """Of all partitions that one consumer reads. Offsets are those to read next: one after the message's own."""

    def __init__(self) -> None:
        self._current: Sequence[ConsumedMessage] = ()
        self._finished: Offsets = {}
        self._settled: Offsets = {}
        self._moved: set[TopicPartition] = set()
        """Partitions that a seek has moved since they were settled. As with Kafka's clients the group continues there."""
        self.taken_away: set[TopicPartition] = set()
        """Partitions that went to another member with messages that were handed out and are not settled. A transaction that consumed these
        messages, with others, cannot commit their offsets any more."""

    def hand_out(self, messages: Sequence[ConsumedMessage]) -> None:
        """These are given out now, in the order of their offsets; those before are finished."""
        self.finish()
        self._current = messages

    def take_back(self, message: ConsumedMessage) -> bool:
        """It was not handed out after all. Not if it is not the last one any more: finished, moved away from, or another member's."""
        if not self._current or self._current[-1] is not message:
            return False
        self._current = self._current[:-1]
        where = TopicPartition(message.topic, message.partition)
        self._settled.setdefault(where, message.offset)
        self._finished.setdefault(where, message.offset)
        return True

    def finish(self) -> None:
        """What was handed out is done."""
        for message in self._current:
            where = TopicPartition(message.topic, message.partition)
            if where not in self._settled:
                self._settled[where] = message.offset
            self._finished[where] = message.offset + 1
        self._current = ()

    def positions(self) -> Offsets:
        """The offsets after what was handed out, finished or not."""
        return self._finished | {TopicPartition(each.topic, each.partition): each.offset + 1 for each in self._current}

    def unsettled(self) -> Offsets:
        """What is finished beyond what is settled, and where a seek went."""
        return {where: offset for where, offset in self._finished.items() if self._settled[where] != offset or where in self._moved}

    def _gone_beyond(self) -> set[TopicPartition]:
        """The partitions with messages that are finished and not settled."""
        return {where for where, offset in self._finished.items() if self._settled[where] != offset}

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are committed, or stored to be."""
        self._settled.update(offsets)
        self._moved.difference_update(offsets)
        self.taken_away.clear()

    def moved(self, where: TopicPartition, offset: int) -> None:
        """A seek: reading continues there."""
        self.forget([where])
        self._finished[where] = self._settled[where] = offset
        self._moved.add(where)

    def rewind(self) -> Offsets:
        """Where to go back to, for each partition that was read beyond what is settled; the caller seeks there."""
        self.finish()
        back = {where: self._settled[where] for where in self._gone_beyond()}
        self._finished.update(back)
        self.taken_away.clear()
        return back

    def take_away(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read by another member."""
        gone = set(partitions)
        held = {TopicPartition(each.topic, each.partition) for each in self._current}
        self.taken_away |= gone & (held | self._gone_beyond())
        self.forget(gone)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these."""
        gone = set(partitions)
        self._current = [each for each in self._current if (each.topic, each.partition) not in gone]
        for where in gone:
            self._finished.pop(where, None)
            self._settled.pop(where, None)
            self._moved.discard(where)


SLICE_S = 0.2
"""Ctrl-C is not handled while librdkafka waits, so it waits in slices."""
_BATCH = 500
_SERVE_EVERY_S = 1.0
"""How often librdkafka is polled at least, also while buffered messages are handed out: rebalances and max.poll.interval.ms need it."""

Listener = Callable[[list[TopicPartition]], object]


class MessageReader:
    """Reads through `session`, which calls it at rebalances."""

    def __init__(self, session: Session) -> None:
        self.progress = ReadProgress()
        self.on_assign: Listener | None = None
        self.on_revoke: Listener | None = None
        self.handed_out = 0
        self._session = session
        self._buffer: deque[ConsumedMessage] = deque()
        self._serve_at = 0.0

    @property
    def buffered(self) -> int:
        """Messages fetched and not yet handed out."""
        return len(self._buffer)

    @property
    def ready(self) -> bool:
        """Whether `take` would not have to ask librdkafka."""
        return bool(self._buffer) and time.monotonic() < self._serve_at

    def take(self, count: int, timeout: float | None) -> list[ConsumedMessage]:
        """At most `count` messages; the first is waited for, at most `timeout` seconds. Those taken before are finished."""
        self.wait(timeout)
        return self.take_nowait(count)

    def wait(self, timeout: float | None) -> None:
        """What was taken is finished. Wait until there is something to take, or `timeout` seconds have passed."""
        self.progress.finish()
        if not self.ready:
            self._fill(timeout)

    def take_nowait(self, count: int) -> list[ConsumedMessage]:
        """At most `count` of the messages that are here."""
        found = [self._buffer.popleft() for _ in range(min(count, len(self._buffer)))]
        self.progress.hand_out(found)
        self.handed_out += len(found)
        return found

    def put_back(self, message: ConsumedMessage) -> None:
        """The message that was handed out last was not: it is the next one, unless a seek or a rebalance has dropped it meanwhile."""
        if self.progress.take_back(message):
            self._buffer.appendleft(message)
            self.handed_out -= 1

    def _fill(self, timeout: float | None) -> None:
        """Serve librdkafka; where nothing is left to hand out, wait for something."""
        self.store_finished()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._buffer:
                found = self._session.fetch(1, 0)
            else:
                wait_s = SLICE_S if deadline is None else max(0.0, min(SLICE_S, deadline - time.monotonic()))
                found = self._session.fetch(_BATCH, wait_s)
            self._buffer += found
            self._serve_at = time.monotonic() + _SERVE_EVERY_S
            if self._buffer or (deadline is not None and time.monotonic() >= deadline):
                return

    def store_finished(self) -> None:
        """Let what is finished be committed, if this consumer commits by itself."""
        if self._session.commits_by_itself and (offsets := self.progress.unsettled()):
            self._session.store(offsets)
            self.progress.settle(offsets)

    # Called by the session, within `fetch` and `close`

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """These are assigned."""
        if self.on_assign is not None:
            self.on_assign(partitions)

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """These go to another member: what was finished is committed before, what was not handed out is dropped."""
        if self.on_revoke is not None:
            self.on_revoke(partitions)
        self.store_finished()
        self._release(partitions)

    def lost(self, partitions: list[TopicPartition]) -> None:
        """These belong to another member already; nothing can be committed."""
        self._release(partitions)
        if self.on_revoke is not None:
            self.on_revoke(partitions)

    def _release(self, partitions: list[TopicPartition]) -> None:
        self._drop(partitions)
        self.progress.take_away(partitions)

    # Places

    def seek(self, where: TopicPartition, offset: int) -> None:
        """Hand out this partition from `offset` on."""
        self._session.seek(where, offset)
        self._drop([where])
        self.progress.moved(where, offset)

    def rewind(self) -> None:
        """Hand out again what is not settled."""
        for where, offset in self.progress.rewind().items():
            self._session.seek(where, offset)
            self._drop([where])

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these that is here already; it is delivered again when librdkafka fetches them again."""
        for where in partitions:
            held = [each for each in self._buffer if (each.topic, each.partition) == where]
            if held:
                self._session.seek(where, held[0].offset)
                self._drop([where])

    def start_over(self) -> None:
        """Other partitions are read from now on."""
        self._buffer.clear()
        self.progress = ReadProgress()

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self._buffer = deque(each for each in self._buffer if (each.topic, each.partition) not in gone)
