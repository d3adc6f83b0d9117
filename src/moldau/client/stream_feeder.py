"""The thread of message streams: it alone calls the source, fetches ahead, and has the finished offsets committed.

`moldau.client.session.Session` is one: a member of a consumer group. `moldau.client.coordinated.source` is another one: members share the
partitions out among themselves. Only the streams' feeder calls it, from its one thread.

What other threads want of the source (a seek, a commit) is a command that it carries out between two fetches.

A stream that is full is waited for: nothing is fetched, for the others neither. Only when another one starves meanwhile are the partitions
of the full one paused. To pause costs, since what librdkafka has fetched of them already is fetched again later, and it may bring
nothing, if the others' partitions are just empty; so it is done later each time that it was of no use.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from moldau.client.message import ConsumedMessage
from moldau.client.session import RebalanceListener
from moldau.client.stream_queues import StreamQueues
from moldau.model.identity import Offset, TopicPartition


class StreamSource(Protocol):
    """Fetches partitions of topics that are shared with others. Errors are `moldau.client.failures.ClientError`."""

    commits_by_itself: bool
    """Whether what is stored is committed now and then."""

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        """Become a member. The listener is called, within `fetch` and `close`, with partitions that are assigned and revoked."""

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned now."""

    def stream_of(self, where: TopicPartition) -> int | None:
        """Which of its topic's streams reads an assigned partition, by its number; None: the one that has the fewest."""

    def fetch(self, count: int, timeout_s: float) -> list[ConsumedMessage]:
        """At most `count` messages of assigned partitions that are not paused, in order; the first one is waited for.

        None that was fetched before its partition was revoked, even if it is assigned again at once.
        """

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing of these for now; those that were not fetched come after `resume`."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch them again."""

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets from which to read next. They may be committed later, but not after the partition is revoked."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The same, and wait for the commit. An error also for what was stored before and could not be committed."""

    def seek(self, where: TopicPartition, offset: int) -> None:
        """Fetch an assigned partition from there on."""

    def bounds(self, where: TopicPartition) -> tuple[Offset, Offset]:
        """First offset and end."""

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """The first offset not older than a time in ms; left out where there is none."""

    def close(self) -> None:
        """Release the partitions; what was stored is committed, within a bounded time. An error names what was not committed."""


R = TypeVar("R")
log = logging.getLogger("moldau.client")

_BATCH = 500
_FETCH_S = 0.1
"""How long a fetch waits, and with it a command."""
_SERVE_EVERY_S = 1.0
"""How often the source is called at least: within these calls it assigns and revokes partitions."""
_STARVING_S_MIN, _STARVING_S_MAX = 0.2, 2.0
REVOKE_WAIT_S = 1.0
"""How long a partition that goes to another member waits for the message that is being worked on, so that it comes only once."""


class StreamFeeder:
    """Feeds `queues` from `source` until it is stopped, or until the source fails."""

    def __init__(self, source: StreamSource, queues: StreamQueues, *, patience_s: float, revoke_wait_s: float) -> None:
        self.error: Exception | None = None
        """What ended it, if it was not `stop`."""
        self.stopping = False
        self._closing_failure: Exception | None = None
        self._source = source
        self._queues = queues
        self._patience_s = patience_s
        self._revoke_wait_s = revoke_wait_s
        self._paused: set[TopicPartition] = set()
        self._pause_was_useful = False
        self._starving_s = _STARVING_S_MIN
        self._resumed_at = time.monotonic() - _STARVING_S_MAX
        self._serve_at = 0.0
        self._commands: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="moldau streams", daemon=True)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.stopping or self.error is not None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Commit what is finished, release the partitions, and end; waits for that. A failure on the way is raised, once."""
        self.stopping = True
        self._queues.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            failure, self._closing_failure = self._closing_failure, None
            if failure is not None:
                raise failure

    def ask(self, command: Callable[[], R]) -> R:
        """Carry out a command in the source's thread, and wait. RuntimeError when it has ended."""
        answer: Future[R] = Future()
        self._commands.put((command, answer))
        while True:
            try:
                return answer.result(_FETCH_S)
            except TimeoutError:
                alive = self._thread.is_alive()
                if answer.done():  # perhaps just after the wait
                    return answer.result()
                if not alive:
                    raise RuntimeError("the streams are closed") from self.error

    def _run(self) -> None:
        try:
            self._source.subscribe(list(self._queues.lanes), self)
            while not self.stopping:
                self._step()
        except Exception as error:
            self.error = error
        finally:
            try:
                self._store(None)
                self._source.close()
            except Exception as error:
                self._closing_failure = error
            self._queues.wake()

    def _step(self) -> None:
        self._run_commands()
        self._store(None)
        full = self._queues.full()
        self._resume(self._paused - full)
        if full <= self._paused:
            self._fetch(_BATCH, _FETCH_S)
        elif time.monotonic() - self._resumed_at >= self._starving_s and self._queues.starving(self._starving_s):
            self._source.pause(full - self._paused)
            self._paused |= full
        else:
            self._queues.wait_for_room(_FETCH_S)
            if time.monotonic() >= self._serve_at:
                self._fetch(1, 0)
        for lane in self._queues.stuck(self._patience_s):
            names = ", ".join(map(str, sorted(lane.partitions)))
            log.warning(
                "stream %d of topic %s: no message taken for %.0f s; messages of %s wait, poll the stream or close the streams",
                lane.number,
                lane.topic,
                self._patience_s,
                names,
            )

    def _fetch(self, count: int, timeout_s: float) -> None:
        messages = self._source.fetch(count, timeout_s)
        self._serve_at = time.monotonic() + _SERVE_EVERY_S
        self._queues.put(messages)
        if messages and self._paused:
            self._pause_was_useful = True

    def _resume(self, partitions: set[TopicPartition]) -> None:
        if partitions:
            self._source.resume(partitions)
            self._paused -= partitions
            self._starving_s = _STARVING_S_MIN if self._pause_was_useful else min(_STARVING_S_MAX, 2 * self._starving_s)
            self._pause_was_useful = False
            self._resumed_at = time.monotonic()

    def _run_commands(self) -> None:
        while not self._commands.empty():
            command, answer = self._commands.get()
            try:
                answer.set_result(command())
            except Exception as error:
                answer.set_exception(error)

    def _store(self, partitions: list[TopicPartition] | None) -> None:
        if self._source.commits_by_itself and (offsets := self._queues.take_finished(partitions)):
            self._source.store(offsets)

    # Called by the source, within `fetch` and `close`

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """These are assigned."""
        self._paused.difference_update(partitions)
        self._queues.own({where: self._source.stream_of(where) for where in partitions})

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """These go to another member: what was not handed out is dropped; messages in hand are waited for, for `revoke_wait_s`."""
        self._queues.hold_back(partitions)
        if not self.stopping:
            self._queues.wait_until_finished(partitions, self._revoke_wait_s)
        self._store(partitions)
        self.lost(partitions)

    def lost(self, partitions: list[TopicPartition]) -> None:
        """These belong to another member already."""
        self._queues.disown(partitions)
        self._paused.difference_update(partitions)
