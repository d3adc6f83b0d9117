"""How far a consumer has come: pure bookkeeping.

A message is *handed out*; it is *finished* when the next one is asked for, or when the consumer says so; only what is finished may be
committed. *Settled* is where reading would start again: what was committed, or where it began.

::

    handed out ──next one asked for──▶ finished ──stored or committed──▶ settled
        ▲                                                                   │
        └───────────────────────────── rewind ──────────────────────────────┘
"""

from collections.abc import Iterable, Mapping, Sequence

from moldau.client.message import ConsumedMessage
from moldau.model.identity import TopicPartition

Offsets = dict[TopicPartition, int]


class Progress:
    """Of all partitions that one consumer reads. Offsets are those to read next: one behind the message's own."""

    def __init__(self) -> None:
        self._current: Sequence[ConsumedMessage] = ()
        self._finished: Offsets = {}
        self._settled: Offsets = {}
        self._moved: set[TopicPartition] = set()
        """Partitions that a seek has moved since they were settled. As with Kafka's clients the group is to go on there."""
        self.taken_away: set[TopicPartition] = set()
        """Partitions that went to somebody else with messages that were handed out and are not settled. Whoever makes something of these
        messages and of others at once, in a transaction, cannot say that they are done any more."""

    def hand_out(self, messages: Sequence[ConsumedMessage]) -> None:
        """These are given out now, in the order of their offsets; those before are finished."""
        self.finish()
        self._current = messages

    def take_back(self, message: ConsumedMessage) -> bool:
        """It was not handed out after all. Not if it is not the last one any more: finished, moved away from, or somebody else's."""
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
        """Behind what was handed out, finished or not."""
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
        """Reading goes on there, by the consumer's wish."""
        self.forget([where])
        self._finished[where] = self._settled[where] = offset
        self._moved.add(where)

    def rewind(self) -> Offsets:
        """Where to go back to, for each partition that has gone beyond what is settled; reading has to go on there."""
        self.finish()
        back = {where: self._settled[where] for where in self._gone_beyond()}
        self._finished.update(back)
        self.taken_away.clear()
        return back

    def take_away(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read by somebody else."""
        gone = set(partitions)
        held = {TopicPartition(each.topic, each.partition) for each in self._current}
        self.taken_away |= gone & (held | self._gone_beyond())
        self.forget(gone)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing is known of these any more."""
        gone = set(partitions)
        self._current = [each for each in self._current if (each.topic, each.partition) not in gone]
        for where in gone:
            self._finished.pop(where, None)
            self._settled.pop(where, None)
            self._moved.discard(where)
