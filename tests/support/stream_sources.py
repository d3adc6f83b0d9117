"""A source of messages for streams, without a broker: partitions as lists, shared out by the test."""

import threading
from collections.abc import Callable, Iterable, Mapping

from moldau.client.message import ConsumedMessage
from moldau.client.session import RebalanceListener
from moldau.model.identity import Offset, TopicPartition

LIMIT_S = 10.0


class FakeSource:
    """Gives what `partitions` hold, from `committed` on. The test's wishes (`give`, `take_away`) are met within the next fetch."""

    def __init__(self, partitions: Mapping[TopicPartition, int], *, commits_by_itself: bool = True) -> None:
        self.commits_by_itself = commits_by_itself
        self.lengths = dict(partitions)
        self.committed: dict[TopicPartition, int] = {}
        self.calls: list[str] = []
        self.streams: dict[TopicPartition, int] = {}
        """By number, of partitions that are not the streams' own choice."""
        self.error: Exception | None = None
        self._listener: RebalanceListener | None = None
        self._at: dict[TopicPartition, int] = {}
        self._stored: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._wishes: list[tuple[Callable[[], None], threading.Event]] = []
        self.thread: int | None = None

    # The test's side

    def give(self, *partitions: TopicPartition) -> None:
        """These become the streams' now; waits until they know."""
        self._wish(lambda: self._give(partitions))

    def take_away(self, *partitions: TopicPartition, lost: bool = False) -> None:
        """These go to somebody else now."""
        self._wish(lambda: self._take_away(partitions, lost=lost))

    def _wish(self, wish: Callable[[], None]) -> None:
        done = threading.Event()
        self._wishes.append((wish, done))
        assert done.wait(LIMIT_S)

    def _give(self, partitions: tuple[TopicPartition, ...]) -> None:
        assert self._listener is not None
        for where in partitions:
            self._at[where] = self.committed.get(where, 0)
        self._listener.assigned(list(partitions))

    def _take_away(self, partitions: tuple[TopicPartition, ...], *, lost: bool) -> None:
        assert self._listener is not None
        (self._listener.lost if lost else self._listener.revoked)(list(partitions))
        for where in partitions:
            if not lost and where in self._stored:
                self.committed[where] = self._stored[where]
            self._stored.pop(where, None)
            self._at.pop(where, None)
            self._paused.discard(where)

    # The feeder's side

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        self.thread = threading.get_ident()
        self.calls.append(f"subscribe {' '.join(topics)}")
        self._listener = listener

    def assignment(self) -> list[TopicPartition]:
        return list(self._at)

    def stream_of(self, where: TopicPartition) -> int | None:
        return self.streams.get(where)

    def fetch(self, count: int, timeout_s: float) -> list[ConsumedMessage]:
        assert threading.get_ident() == self.thread, "one thread asks a source"
        if self.error is not None:
            raise self.error
        wishes, self._wishes = self._wishes, []
        for wish, done in wishes:
            wish()
            done.set()
        found: list[ConsumedMessage] = []
        for where, at in self._at.items():
            if where not in self._paused:
                end = min(self.lengths[where], at + count - len(found))
                found += [
                    ConsumedMessage(b"%d" % offset, topic=where.topic, partition=where.partition, offset=offset)
                    for offset in range(at, end)
                ]
                self._at[where] = max(at, end)
        if not found:
            threading.Event().wait(0.001)
        return found

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused |= set(partitions)
        self.calls.append("pause")

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused -= set(partitions)
        self.calls.append("resume")

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        assert set(offsets) <= set(self._at), "what is stored is ours"
        self._stored.update(offsets)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed.update(offsets)
        self.calls.append("commit")

    def seek(self, where: TopicPartition, offset: int) -> None:
        self._at[where] = offset

    def bounds(self, where: TopicPartition) -> tuple[Offset, Offset]:
        return Offset(0), Offset(self.lengths[where])

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        return {where: Offset(time) for where, time in times.items() if time < self.lengths[where]}

    def close(self) -> None:
        self._take_away(tuple(self._at), lost=False)
        self.calls.append("close")
