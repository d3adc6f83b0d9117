"""Topics are deleted: marked, removed by brokers, and then their nodes removed. From the mark on the next controller completes it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from moldau.cluster import queries, znodes
from moldau.cluster.changes import Change, DropPartitions, DropTopic, MarkDeletion
from moldau.cluster.control import StoppedTopic
from moldau.cluster.controller.broadcast import PARTITIONS_PER_STEP, Broadcast, Countdown, StepRotation
from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage, Replicas
from moldau.cluster.controller.planning import Outcomes, not_stored
from moldau.cluster.controller.requests import DeletedTopic, DeleteTopics, TopicChoice
from moldau.cluster.internal_topics import check_unprotected
from moldau.cluster.queries import FoundTopic, TopicNodes
from moldau.cluster.snapshot import unknown_topic
from moldau.cluster.store import WriteResult
from moldau.model.config import BrokerConfig
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.identity import format_id
from moldau.ports.coordination import NodeError, NodeExistsError

DELETED_TOGETHER_MAX = 1000
"""Partitions whose removal brokers bring to disk together, unless one topic has more: that takes time for all partitions there are."""
MARKED_TOGETHER_MAX = 100


class _Deletion(NamedTuple):
    name: str
    topic_id: bytes | None
    replicas: tuple[int, ...]
    """Brokers that have replicas."""
    partitions: int
    choice: TopicChoice | None = None
    """What the request called it."""
    outcomes: Outcomes | None = None


class TopicDeletions:
    """See the module."""

    def __init__(
        self,
        image: ClusterImage,
        outbox: Outbox,
        broadcast: Broadcast,
        works: StepRotation,
        config: BrokerConfig,
        wake: Callable[[], object],
    ) -> None:
        """`wake` has `resume_unfinished` called after a while."""
        self._image = image
        self._outbox = outbox
        self._broadcast = broadcast
        self._works = works
        self._config = config
        self._waiting: deque[_Deletion] = deque()
        self._is_marking = False
        self._unreached: list[_Deletion] = []
        """Deletions of topics with a replica on a broker that is not live."""
        self._wake = wake
        self._unfinished: list[_Deletion] = []
        """Those of topics that are closed already, and for which the store has failed since."""

    def delete(self, ticket: int, request: DeleteTopics) -> None:
        """Delete topics; answer."""
        outcomes = Outcomes(self._outbox, ticket, request.topics)

        def steps() -> Iterator[None]:
            by_id: dict[bytes, str] | None = None
            for choice in request.topics:
                name = choice.name
                if name is None:
                    if by_id is None:
                        by_id = {topic.topic_id: topic.name for topic in self._image.topics.values()}
                    name = by_id.get(choice.topic_id or b"")
                if name is None:
                    outcomes.settle(choice, _unknown("", choice))
                else:
                    self._image.when_free(name, partial(self._delete, name, choice, outcomes))
                yield None

        self._works.add(steps())

    def _delete(self, name: str, choice: TopicChoice, outcomes: Outcomes) -> None:
        topic = self._image.topics.get(name)
        try:
            if topic is None or choice.topic_id not in (None, topic.topic_id):
                raise _unknown(name, choice)
            check_unprotected(self._config, name, "delete it")
        except PeerError as error:
            outcomes.settle(choice, error)
            self._image.free(name)
            return
        self._begin(_Deletion(name, topic.topic_id, _brokers_of(topic.replicas), len(topic.replicas), choice, outcomes))

    def remove_empty(self, name: str) -> None:
        """Delete a topic whose node names no partitions, as an interrupted creation of an earlier version leaves it."""

        self._image.when_free(name, partial(self._begin, _Deletion(name, None, (), 0)))

    def resume(self, name: str, found: FoundTopic | None) -> None:
        """Continue a deletion from its mark on. `found` is what is left of the topic."""
        topic_id = None if found is None else found.node.topic_id
        replicas = () if found is None else _brokers_of(found.node.replicas)
        deletion = _Deletion(name, topic_id, replicas, 0 if found is None else len(found.states))

        def run() -> None:
            self._image.remove(name)
            self._image.deleting[name] = topic_id
            self._stop([deletion])

        self._image.when_free(name, run)

    def brokers_changed(self) -> None:
        """Continue deletions for which a broker was missing."""
        unreached, self._unreached = self._unreached, []
        for deletion in unreached:
            self._image.when_free(deletion.name, partial(self._stop, [deletion]))

    def resume_unfinished(self) -> None:
        """Repeat deletions that the store has failed for, from the mark on."""
        unfinished, self._unfinished = self._unfinished, []
        for deletion in unfinished:
            self._image.when_free(deletion.name, partial(self._begin, deletion))

    def _begin(self, deletion: _Deletion) -> None:
        self._waiting.append(deletion)
        self._mark()

    def _mark(self) -> None:
        if self._is_marking or not self._waiting:
            return
        batch: list[_Deletion] = []
        room = DELETED_TOGETHER_MAX
        while self._waiting and len(batch) < MARKED_TOGETHER_MAX and (not batch or self._waiting[0].partitions <= room):
            batch.append(self._waiting.popleft())
            room -= batch[-1].partitions
        self._write_marks(batch, [])

    def _write_marks(self, batch: list[_Deletion], marked: list[_Deletion]) -> None:
        if batch:
            self._is_marking = True
            self._outbox.write([MarkDeletion(each.name) for each in batch], partial(self._marked, batch, marked))
        else:
            self._stop(marked)

    def _marked(self, batch: list[_Deletion], marked: list[_Deletion], outcome: WriteResult | CoordinationError) -> None:
        self._is_marking = False
        if isinstance(outcome, WriteResult):
            self._stop([*marked, *batch])
        elif isinstance(outcome, NodeExistsError):  # marked by another writer
            there = [each for each in batch if znodes.delete_topic(each.name) == outcome.path]
            self._write_marks([each for each in batch if each not in there], [*marked, *there])
        else:
            error = not_stored(f"delete topics {[each.name for each in batch]}", outcome)
            if outcome.retriable or isinstance(outcome, NodeError):  # certainly not written
                self._fail(batch, error)
            else:
                self._close(batch, error)
            self._stop(marked)
        self._mark()

    def _fail(self, batch: Sequence[_Deletion], error: PeerError) -> None:
        """The store has failed; what is closed already is deleted all the same."""
        for each in batch:
            if each.name in self._image.deleting:
                self._unfinished.append(each._replace(outcomes=None))
                self._wake()
            self._end(each, error)

    def _close(self, batch: Sequence[_Deletion], error: PeerError) -> None:
        """Serve topics no more of which it is not known whether they are marked: the next controller may find the marks, and delete what
        producers had been acknowledged since.
        """
        for each in batch:
            self._image.remove(each.name)
            self._image.deleting[each.name] = each.topic_id
        replied = Countdown(2, partial(self._fail, batch, error))
        self._broadcast.update(deleted=[each.name for each in batch], then=replied)
        stopped = [StoppedTopic(each.name, each.topic_id, each.partitions) for each in batch]
        self._broadcast.stop(stopped, replied, deletes=False)

    def _stop(self, batch: Sequence[_Deletion]) -> None:
        """Have brokers delete the replicas of topics that are marked."""
        if not batch:
            return
        for each in batch:
            self._image.remove(each.name)
            self._image.deleting[each.name] = each.topic_id
        replied = Countdown(2, partial(self._stopped, batch, dict(self._image.live)))
        self._broadcast.update(deleted=[each.name for each in batch], then=replied)
        self._broadcast.stop([StoppedTopic(each.name, each.topic_id, each.partitions) for each in batch], replied)

    def _stopped(self, batch: Sequence[_Deletion], sent_to: Mapping[int, int]) -> None:
        live = self._image.live
        if any(sent_to.get(broker_id) != epoch for broker_id, epoch in live.items()):
            self._stop(batch)  # a broker has registered meanwhile, and may have come too late to be sent this
            return
        reached = []
        for each in batch:
            if all(broker_id in live for broker_id in each.replicas):
                reached.append(each)
            else:
                self._unreached.append(each._replace(outcomes=None))
                self._end(each, None)
        left: dict[str, TopicNodes] = {}
        read = Countdown(len(reached), lambda: self._drop(reached, left))

        def nodes_read(deletion: _Deletion, nodes: TopicNodes | CoordinationError) -> None:
            if isinstance(nodes, CoordinationError):
                self._fail([deletion], not_stored(f"delete topic {deletion.name}", nodes))
            else:
                left[deletion.name] = nodes
            read()

        for each in reached:
            self._outbox.read(queries.topic_nodes(each.name), partial(nodes_read, each))

    def _drop(self, batch: Sequence[_Deletion], left: dict[str, TopicNodes]) -> None:
        """Remove the nodes, those of some partitions with each write; a topic's own with its last ones."""
        changes: list[Change] = []
        ended: list[_Deletion] = []
        partitions = 0

        def write() -> None:
            nonlocal changes, ended, partitions
            if changes:
                self._outbox.write(changes, partial(self._dropped, ended))
            changes, ended, partitions = [], [], 0

        for each in batch:
            nodes = left.get(each.name)
            if nodes is None:
                continue
            for start in range(0, len(nodes.partitions), PARTITIONS_PER_STEP):
                some = nodes.partitions[start : start + PARTITIONS_PER_STEP]
                if partitions + len(some) > PARTITIONS_PER_STEP:
                    write()
                changes.append(DropPartitions(each.name, some))
                partitions += len(some)
            changes.append(DropTopic(each.name, nodes.nodes))
            ended.append(each)
        write()

    def _dropped(self, ended: Sequence[_Deletion], outcome: WriteResult | CoordinationError) -> None:
        if not isinstance(outcome, WriteResult):
            self._fail(ended, not_stored(f"delete topics {[each.name for each in ended]}", outcome))
            return
        for each in ended:
            self._image.deleting.pop(each.name, None)
            self._end(each, None)

    def _end(self, deletion: _Deletion, error: PeerError | None) -> None:
        """What was done for a topic has ended."""
        if deletion.outcomes is not None:
            assert deletion.choice is not None
            assert deletion.topic_id is not None
            done = DeletedTopic(deletion.name, deletion.topic_id, deletion.partitions)
            deletion.outcomes.settle(deletion.choice, done if error is None else error)
        self._image.free(deletion.name)


def _unknown(name: str, choice: TopicChoice) -> PeerError:
    if choice.topic_id is None:
        return unknown_topic(name)
    return PeerError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {format_id(choice.topic_id)}")


def _brokers_of(replicas: Iterable[Replicas]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(broker_id for each in replicas for broker_id in each))
