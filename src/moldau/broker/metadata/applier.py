"""Applies what the controller sends: the metadata that clients are answered, roles of partitions, deletions. And changed configurations.

One thing after the other, in steps; only what a deletion has to bring to disk is done beside the rest, one deletion after the other, and
what is kept elsewhere of deleted topics is dropped beside both. What comes from a controller or for an incarnation of this broker that is
over is not applied. To apply something twice does nothing the second time.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar, assert_never

from moldau.broker.replicas.manager import FollowerState, LeaderState, ReplicaManager
from moldau.broker.replicas.partition_events import StaleEpochError
from moldau.cluster import queries
from moldau.cluster.control import (
    AssignedTopic,
    Control,
    ControlReply,
    LeaderAndIsr,
    LedPartition,
    StoppedTopic,
    StopReplica,
    UpdateMetadata,
)
from moldau.cluster.queries import Query
from moldau.cluster.snapshot import MetadataCache
from moldau.cluster.store import MetadataStore
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.errors import CoordinationError, MoldauError, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Pause, Steps, Suspension

if TYPE_CHECKING:
    from moldau.broker.admission.slices import SliceScheduler
    from moldau.broker.replicas.rules import SettingsCache, TopicSettings
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

FORGETTING_S = 1.0
"""The answer to a deletion waits for so long until what is kept of its topics is dropped."""
REMOVED_PER_STEP = 10
"""Partitions whose folders are renamed before other work runs: each takes about 0.1 ms."""
READ_AGAIN_S = 1.0
"""A read of configurations that failed is repeated after this time."""
LOOK_AGAIN_S = 0.1
LOOKS_MAX = 50
"""So often it is looked whether topics are in the tree that the controller has sent."""
LOGGED_MAX = 20
"""Partitions that one line of the log names."""
T = TypeVar("T")


class _IncarnationOverError(Exception):
    """The message was for an earlier registration of this broker."""


class StepQueue:
    """Carries out steps in the order in which they come: as soon as it can be, and from `serve` on in turns with requests."""

    def __init__(self, slices: "SliceScheduler") -> None:
        self._slices = slices
        self._waiting: deque[Steps] = deque()
        self._is_running = False
        self._is_serving = False
        self._is_closed = False

    def serve(self) -> None:
        """From now on take turns with requests."""
        self._is_serving = True

    def close(self) -> None:
        """Begin no steps any more."""
        self._is_closed = True
        self._waiting.clear()

    def run(self, steps: Steps) -> None:
        """Take steps after those that came before."""
        if self._is_closed:
            return
        self._waiting.append(steps)
        if not self._is_running:
            self._start()

    def _start(self) -> None:
        self._is_running = True
        try:
            if self._is_serving:
                if self._slices.run(self._all(), self._ended, droppable=False) is None:
                    self._is_running = False
            else:
                self._run_eagerly(self._all())
        except BaseException:
            self._is_running = False
            raise

    def _all(self) -> Steps:
        while self._waiting:
            yield from self._waiting.popleft()

    def _ended(self, error: Exception | None) -> None:
        self._is_running = False
        if error is not None:
            _LOG.error("metadata not applied because of a bug", exc_info=error)
        if self._waiting:
            self._start()

    def _run_eagerly(self, steps: Steps) -> None:
        for pause in steps:
            if isinstance(pause, Suspension):
                is_back: list[bool] = []

                def resume(is_back: list[bool] = is_back) -> None:
                    if is_back:
                        self._run_eagerly(steps)
                    is_back.append(True)

                pause.begin(resume)
                if not is_back:
                    is_back.append(False)
                    return
        self._is_running = False


class MetadataApplier:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        store: MetadataStore,
        replicas: ReplicaManager,
        settings: "SettingsCache",
        slices: "SliceScheduler",
        clock: "Clock",
        topics_deleted: Callable[[Sequence[str], Callable[[], object]], object],
    ) -> None:
        """`topics_deleted` drops what is kept of deleted topics elsewhere, and then makes the call."""
        self.broker_epoch = 0
        """This broker's incarnation."""
        self._broker_id = broker_id
        self._cache = cache
        self._store = store
        self._replicas = replicas
        self._settings = settings
        self._clock = clock
        self._topics_deleted = topics_deleted
        self.controller_epoch = 0
        """Of the latest controller that has sent something."""
        self._received = (0, 0, 0)
        """Epochs of the controller and of this broker, and number of the latest message that came over a connection."""
        self._queue = StepQueue(slices)
        self._removals = StepQueue(slices)
        """What is left to do of deletions when nothing of the topics is served any more."""
        self._answers: dict[Callable[[], object], Timer] = {}
        """Those to deletions of which something is not dropped yet, and when they are given all the same."""
        self._knows_configs = True
        """Whether the configurations of all topics were read: those of the first ones, before the start."""

    def forget_configs(self) -> None:
        """Read the configuration of each topic that the controller sends first: some may have changed since all were read."""
        self._knows_configs = False

    def serve(self) -> None:
        """From now on take turns with requests; before, everything is done as soon as it can be."""
        self._queue.serve()
        self._removals.serve()

    def close(self) -> None:
        """Apply nothing any more, and answer nothing: the broker stops, and what came later would open what is being closed."""
        self._queue.close()
        self._removals.close()
        for timer in self._answers.values():
            timer.cancel()
        self._answers.clear()

    def apply(self, broker_epoch: int, control: Control, done: Callable[[ControlReply], object]) -> None:
        """Apply what the controller has sent to an incarnation of this broker."""
        self.run(self._apply(broker_epoch, control, done))

    def apply_received(self, broker_epoch: int, control: Control, sequence: int, done: Callable[[ControlReply], object]) -> None:
        """The same for what came over a connection; nothing if that controller has sent this before something that came earlier. A
        `sequence` of 0 is no number.
        """
        position = control.controller_epoch, broker_epoch, sequence
        if sequence and position <= self._received:
            done(ControlReply(is_stale=True))
            return
        self._received = max(self._received, position)
        self.apply(broker_epoch, control, done)

    def run(self, steps: Steps) -> None:
        """Take steps after those that came before."""
        self._queue.run(steps)

    def _apply(self, broker_epoch: int, control: Control, done: Callable[[ControlReply], object]) -> Steps:
        if control.controller_epoch < self.controller_epoch or broker_epoch < self.broker_epoch:
            _LOG.warning(
                "message of a controller that is over, or to an earlier registration, not applied: kind=%s controller_epoch=%d known=%d",
                type(control).__name__,
                control.controller_epoch,
                self.controller_epoch,
            )
            done(ControlReply(is_stale=True))
            return
        self.controller_epoch = control.controller_epoch
        reply = ControlReply()
        try:
            match control:
                case LeaderAndIsr(_, partitions):
                    reply = yield from self._lead(partitions, broker_epoch)
                case UpdateMetadata():
                    yield from self._update(control, broker_epoch)
                case StopReplica(_, topics, deletes):
                    yield from self._stop({topic.name: topic for topic in topics}, deletes=deletes)
                    if deletes:
                        self._removals.run(self._remove([topic.name for topic in topics if topic.only is None], done))
                        return
                case _:
                    assert_never(control)
        except _IncarnationOverError:
            reply = ControlReply(is_stale=True)
        except Exception as error:  # the controller continues all the same
            _LOG.error("message of the controller not applied because of a bug: kind=%s", type(control).__name__, exc_info=error)
        done(reply)

    # What clients are answered

    def _update(self, control: UpdateMetadata, broker_epoch: int) -> Steps:
        cache = self._cache
        configs: dict[str, dict[str, str]] = {}
        new = [topic.name for topic in control.topics if self._is_new(topic.name, topic.topic_id) and topic.name not in cache.new_configs]
        if new and not self._knows_configs:
            configs = yield from self._read_configs(new, broker_epoch)
        own = {name: values for name, values in (configs | cache.new_configs).items() if values}
        topics = {topic.name: topic for topic in control.topics}
        missed: list[str] = []
        if control.everything is not None:
            existing = dict.fromkeys(each.topic_id for each in control.everything)
            missed = [name for name, topic in cache.snapshot.topics.items() if name not in topics and topic.topic_id not in existing]
        cache.note_departed(control.brokers, self._clock.monotonic())
        cache.forget((*control.deleted, *missed))
        cache.snapshot = cache.snapshot.updated(
            control.brokers,
            control.controller_id,
            map(cache.with_learned, control.topics),
            (*control.deleted, *missed),
            {name: values for name, values in own.items() if name in topics},
        )
        for name in topics:
            cache.new_configs.pop(name, None)
        self._knows_configs = False
        if control.everything is not None:
            cache.complete()
            yield from self._remove_missed(missed, control.everything)

    def _remove_missed(self, topics: Sequence[str], everything: Sequence[AssignedTopic]) -> Steps:
        """What this broker has missed is made up for: replicas that were removed from it, and topics that were deleted.

        A replica of an existing topic goes with its log. The log of a topic that does not exist stays: nothing has had it deleted here.
        """
        if topics:
            _LOG.warning("topics were deleted while this broker was not registered: topics=%s", ",".join(topics))
            self._topics_deleted(topics, lambda: None)
        logs = self._replicas.logs
        assigned = {each.topic_id: dict.fromkeys(each.partitions) for each in everything}
        removed: list[TopicPartition] = []
        unknown: list[TopicPartition] = []
        for topic_partition in logs.partitions():
            yield UNFINISHED
            topic_id = logs.topic_id(topic_partition)
            if topic_id is None:
                continue
            if topic_id not in assigned:
                unknown.append(topic_partition)
            elif topic_partition.partition not in assigned[topic_id]:
                removed.append(topic_partition)
        if unknown:
            _LOG.warning(
                "logs of topics that do not exist are kept, and not served: number=%d partitions=%s",
                len(unknown),
                ",".join(map(str, unknown[:LOGGED_MAX])),
            )
        for topic_partition in removed:
            _LOG.warning("log removed, its replica was moved while this broker was not registered: partition=%s", topic_partition)
        for some, deletes in ((unknown, False), (removed, True)):
            for start in range(0, len(some), REMOVED_PER_STEP):
                self._replicas.stop(some[start : start + REMOVED_PER_STEP], delete=deletes)
                yield UNFINISHED
        if removed:
            self._removals.run(self._remove((), lambda _reply: None))

    def _is_new(self, name: str, topic_id: bytes) -> bool:
        known = self._cache.snapshot.topics.get(name)
        return known is None or known.topic_id != topic_id

    def _read_configs(self, names: Sequence[str], broker_epoch: int) -> Generator[Pause, None, dict[str, dict[str, str]]]:
        """What topics set, read again and again if the store fails; nothing where that is malformed. _IncarnationOverError.

        Topics that are not in the tree are waited for, for a moment: they may be deleted, or this broker's server of it lags.
        """
        looks = 0
        while True:
            again_s = READ_AGAIN_S
            try:
                found, missing = yield from self.answered(queries.topic_configs_and_missing(names))
            except CoordinationError as error:
                if broker_epoch < self.broker_epoch:
                    raise _IncarnationOverError from error
                _LOG.error("configurations not read; they are read again: topics=%s reason=%s", ",".join(names), error)
            else:
                looks += 1
                if not missing or looks == LOOKS_MAX:
                    for name, values in found.items():
                        if isinstance(values, MalformedNodeError):
                            _LOG.error("configuration malformed; defaults apply until it is changed: topic=%s reason=%s", name, values)
                    return {name: values for name, values in found.items() if not isinstance(values, MalformedNodeError)}
                if broker_epoch < self.broker_epoch:
                    raise _IncarnationOverError
                again_s = LOOK_AGAIN_S
                if looks == 1:
                    _LOG.warning("topics are not in the coordination tree yet; looking again: topics=%s", ",".join(missing[:LOGGED_MAX]))
            yield Suspension(partial(self._clock.call_later, again_s))

    def answered(self, query: Query[T]) -> Generator[Pause, None, T]:
        """Steps that make a query. CoordinationError."""
        outcomes: list[T | CoordinationError] = []
        resumes: list[Callable[[], object]] = []

        def done(outcome: T | CoordinationError) -> None:
            outcomes.append(outcome)
            for resume in resumes:
                resume()

        queries.answer(self._store, query, done)
        if not outcomes:
            yield Suspension(resumes.append)
        (outcome,) = outcomes
        if isinstance(outcome, CoordinationError):
            raise outcome
        return outcome

    # Roles

    def _lead(self, partitions: Sequence[LedPartition], broker_epoch: int) -> Generator[Pause, None, ControlReply]:
        """Take roles in partitions of which this broker has a replica. The reply has those that have to be elected again, with the epochs
        that their logs know.
        """
        cache, logs = self._cache, self._replicas.logs
        own = [each for each in partitions if self._broker_id in each.info.replicas]
        if len(own) < len(partitions):
            _LOG.warning("partitions of other brokers not taken: number=%d", len(partitions) - len(own))
        partitions = own
        new = [each for each in dict.fromkeys(each.topic for each in partitions) if each not in cache.snapshot.topics]
        new = [name for name in new if name not in cache.new_configs]
        if new and not self._knows_configs:
            found = yield from self._read_configs(new, broker_epoch)
            cache.new_configs |= {name: found.get(name, {}) for name in new}
        made = [(TopicPartition(each.topic, each.info.partition), each.topic_id) for each in partitions if each.is_new]
        if made:
            yield from logs.make_folders(made)
        floors: dict[TopicPartition, int] = {}
        inconsistent: list[TopicPartition] = []
        offline: list[tuple[bytes, int]] = []
        for each in partitions:
            topic_partition = TopicPartition(each.topic, each.info.partition)
            hosted = self._replicas.hosted.get(topic_partition)
            if hosted is not None and hosted.topic_id != each.topic_id:
                _LOG.error("role not taken, the topic has another id here: partition=%s topic_id=%s", topic_partition, each.topic_id.hex())
                inconsistent.append(topic_partition)
                continue
            try:
                floor = self._become(topic_partition, each)
            except MoldauError as error:
                _LOG.error("partition offline: partition=%s reason=%s", topic_partition, error)
                if not isinstance(error, StorageError) or not error.no_space:  # a full disk passes
                    offline.append((each.topic_id, each.info.partition))
            else:
                if floor is not None:
                    floors[topic_partition] = floor
            yield UNFINISHED
        if made:
            yield from logs.drop_folders(topic_partition for topic_partition, _ in made)
        return ControlReply(floors, inconsistent=tuple(inconsistent), offline=tuple(offline))

    def _become(self, topic_partition: TopicPartition, led: LedPartition) -> int | None:
        """Take a role; the latest epoch that the log knows if the one given is not later."""
        info = led.info
        hosted = self._replicas.hosted.get(topic_partition)
        if hosted is None:
            self._replicas.logs.choose_folder(topic_partition, led.topic_id, self._clock.time_ms())
        log = self._replicas.logs.get(topic_partition)
        has_foreign_epochs = hosted is None or (hosted.machine.is_mirror and not info.is_mirror)
        if log is not None and has_foreign_epochs and log.latest_epoch > info.leader_epoch:
            return log.latest_epoch
        settings = self._settings_of(led.topic)
        try:
            if info.leader == self._broker_id:
                state = LeaderState(info.leader_epoch, info.state_version, info.replicas, info.isr, info.is_mirror, info.cut)
                self._replicas.become_leader(topic_partition, state, led.topic_id, settings, is_new=led.is_new)
            else:
                follower = FollowerState(info.leader_epoch, info.state_version, info.replicas, info.leader, info.is_mirror)
                self._replicas.become_follower(topic_partition, follower, led.topic_id, settings, is_new=led.is_new)
        except StaleEpochError:
            known = self._replicas.hosted[topic_partition].machine.leader_epoch if topic_partition in self._replicas.hosted else -1
            return known if known > info.leader_epoch else None
        return None

    def _settings_of(self, topic: str) -> "TopicSettings":
        return self._settings.of(self._cache.config_of(topic))

    def reconfigure(self, topic: str) -> Steps:
        """Have the replicas of a topic obey its configuration as it is now."""
        info = self._cache.snapshot.topics.get(topic)
        for index in range(0 if info is None else len(info.partitions)):
            self._replicas.reconfigure(TopicPartition(topic, index), self._settings_of(topic))  # as it is by now
            yield UNFINISHED

    # Deletions

    def _stop(self, topics: Mapping[str, StoppedTopic], *, deletes: bool) -> Steps:
        """Serve nothing of topics any more, replicas without a log included; with `deletes` mark it for removal."""
        logs = self._replicas.logs
        found = dict.fromkeys(
            TopicPartition(topic.name, index)
            for topic in topics.values()
            for index in (range(topic.partitions) if topic.only is None else topic.only)
        )
        whole = {name: None for name, topic in topics.items() if topic.only is None}
        found |= dict.fromkeys(each for each in logs.partitions() if each.topic in whole)
        partitions = iter([each for each in found if _is_one(logs.topic_id(each), topics[each.topic].topic_id)])
        while some := list(islice(partitions, REMOVED_PER_STEP)):
            self._replicas.stop(some, delete=deletes)
            yield UNFINISHED

    def _remove(self, names: Sequence[str], done: Callable[[ControlReply], object]) -> Steps:
        """Bring to disk that logs are deleted, and drop what is kept of these topics, which are. The answer waits for that too, but only
        for a while: coordinators have to commit first what they have written, for which they may need what the controller sends after it.
        """
        try:
            yield from self._replicas.logs.settle_deleted()
        except Exception as error:  # the controller continues all the same
            _LOG.error("deletion not completed because of a bug: topics=%s", ",".join(names), exc_info=error)
        if not names:
            done(ControlReply())
            return

        def answer() -> None:
            timer = self._answers.pop(answer, None)
            if timer is not None:
                timer.cancel()
                done(ControlReply())

        self._answers[answer] = self._clock.call_later(FORGETTING_S, answer)
        self._topics_deleted(names, answer)


def _is_one(found: bytes | None, wanted: bytes | None) -> bool:
    """Whether two topics of one name are one, as far as is known."""
    return found is None or wanted is None or found == wanted
