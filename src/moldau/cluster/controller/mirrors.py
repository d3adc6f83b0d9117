"""Partitions become those of a mirror, or are promoted: the states in the tree, and `mirror.source` of their topics.

The state decides, and is sent with the leadership; the configuration shows it, and says what partitions that are added become. It is
written with the first states of a topic that becomes a mirror, and removed with the last that are promoted: it is set as long as a
partition is a mirror's.

Without a source a request raises the leader epoch of what is a mirror already, and makes none: a leader asks for that, perhaps while the
partition is promoted.

A partition that becomes a mirror's gets the next leader epoch, so that its leader begins a term. One that is promoted begins with epochs
of its own, `EPOCHS_APART` after all that are known: a replica that is not there may have batches of later epochs of the source than the
leader, and if the leader wrote with one of these, replicas would take different records for the same. An example: the leader has epoch 5
up to offset 1, and another replica epoch 6 up to offset 4. Led with epoch 6, that one would be asked to keep what it has of epoch 6. The
cut names all epochs before the first of its own. To repeat a promotion changes nothing.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from moldau.cluster import queries, znodes
from moldau.cluster.changes import Change, PutTopicConfig
from moldau.cluster.controller.broadcast import PARTITIONS_PER_STEP, Countdown
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage, TopicImage
from moldau.cluster.controller.planning import not_stored
from moldau.cluster.controller.requests import AlteredMirror, AlterMirrors
from moldau.cluster.internal_topics import check_may_mirror
from moldau.cluster.queries import FoundState
from moldau.cluster.snapshot import PartitionInfo
from moldau.cluster.store import WriteResult
from moldau.cluster.znodes import MalformedNodeError, PartitionState
from moldau.model.config import MIRROR_SOURCE
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.identity import LogCut, TopicPartition
from moldau.ports.coordination import NodeError

_LOG = logging.getLogger(__name__)

EPOCHS_APART = 1 << 16
"""More than a source can have elections between what two replicas have of it; 32,000 promotions use up the epochs."""
EPOCH_MAX = 2**31 - 1 - 2 * EPOCHS_APART

Outcomes = dict[TopicPartition, PeerError | None]


class MirrorChanges:
    """See the module."""

    def __init__(self, image: ClusterImage, outbox: Outbox, elections: Elections, epoch: int) -> None:
        """`epoch`: the controller's."""
        self._image = image
        self._outbox = outbox
        self._elections = elections
        self._epoch = epoch

    def alter(self, ticket: int, request: AlterMirrors) -> None:
        """Carry out a request, one topic beside the others; answer."""
        outcomes: Outcomes = dict.fromkeys(request.partitions)
        by_topic: dict[str, dict[int, AlteredMirror]] = {}
        for (name, index), altered in request.partitions.items():
            by_topic.setdefault(name, {})[index] = altered
        ended = Countdown(len(by_topic), lambda: self._outbox.answer(ticket, outcomes))
        for name, wanted in by_topic.items():
            change = _TopicChange(self, name, request.sources.get(name, ""), wanted, outcomes, ended)
            self._image.when_free(name, change.begin)


class _TopicChange:
    """What a request changes of one topic, in writes of 100 partitions."""

    def __init__(
        self,
        changes: MirrorChanges,
        name: str,
        source: str,
        wanted: Mapping[int, AlteredMirror],
        outcomes: Outcomes,
        ended: Callable[[], object],
    ) -> None:
        self._image = changes._image
        self._outbox = changes._outbox
        self._elections = changes._elections
        self._epoch = changes._epoch
        self._name = name
        self._source = source
        self._left = dict(wanted)
        self._outcomes = outcomes
        self._ended = ended

    def begin(self) -> None:
        """The topic is free: refuse what cannot be, and write the rest."""
        for index, altered in list(self._left.items()):
            try:
                self._check(index, altered)
            except PeerError as error:
                self._outcomes[TopicPartition(self._name, index)] = error.as_value()
                del self._left[index]
            else:
                if self._is_done(self._image.topics[self._name].info(index), altered):
                    del self._left[index]
        self._continue()

    def _is_done(self, info: PartitionInfo, altered: AlteredMirror) -> bool:
        """Whether a partition is promoted already, or a mirror's with so late an epoch."""
        if not altered.is_mirror:
            return not info.is_mirror
        return info.is_mirror and not self._source and altered.cut_offset < 0 and info.leader_epoch > altered.epoch

    def _check(self, index: int, altered: AlteredMirror) -> None:
        topic = self._image.topics.get(self._name)
        if topic is None or not 0 <= index < len(topic.partitions) or topic.partitions[index] is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {self._name}-{index} does not exist")
        if altered.is_mirror:
            check_may_mirror(self._name)
            if not self._source and not topic.info(index).is_mirror:
                raise PeerError(ErrorCode.INVALID_REQUEST, f"{self._name}-{index} becomes a mirror: its source is needed")
        if altered.cut_offset >= 0 > altered.epoch:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"{self._name}-{index}: a cut at offset {altered.cut_offset} needs an epoch")
        if max(altered.epoch, topic.info(index).leader_epoch) > EPOCH_MAX:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"{self._name}-{index}: no epochs are left after {EPOCH_MAX}")

    def _continue(self) -> None:
        if self._left:
            self._outbox.read(queries.config(znodes.topic_config(self._name)), self._config_read)
        else:
            self._end()

    def _config_read(self, found: tuple[dict[str, str], int | None] | CoordinationError) -> None:
        topic = self._image.topics.get(self._name)
        if isinstance(found, CoordinationError):
            self._fail(not_stored(f"alter mirror {self._name}", found))
            return
        if topic is None:
            self._fail(PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{self._name}' was deleted meanwhile"))
            return
        values, version = found
        some = dict(list(self._left.items())[:PARTITIONS_PER_STEP])
        source = self._source or values.get(MIRROR_SOURCE, "")
        stays = any(
            some[index].is_mirror if index in some else info is not None and info.is_mirror for index, info in enumerate(topic.partitions)
        )
        states = {index: topic.next(index, self._next_state(topic, index, altered)) for index, altered in some.items()}
        changes: list[Change] = [topic.change(index, after) for index, after in states.items()]
        after_values = {name: text for name, text in values.items() if name != MIRROR_SOURCE} | ({MIRROR_SOURCE: source} if stays else {})
        if after_values != values:
            changes.append(PutTopicConfig(self._name, after_values, version))
        self._outbox.write(changes, partial(self._written, topic, states))

    def _next_state(self, topic: TopicImage, index: int, altered: AlteredMirror) -> PartitionState:
        state = topic.state(index, self._epoch)
        last_epoch, cut_epoch = max(state.leader_epoch, altered.epoch), altered.epoch
        if not altered.is_mirror:
            last_epoch = cut_epoch = last_epoch + EPOCHS_APART - 1
        cut = state.cut if altered.is_mirror and state.is_mirror else None
        if altered.cut_offset >= 0:
            cut = LogCut(cut_epoch, altered.cut_offset)
        return state._replace(leader_epoch=last_epoch + 1, is_mirror=altered.is_mirror, cut=cut)

    def _written(self, topic: TopicImage, states: Mapping[int, FoundState], outcome: WriteResult | CoordinationError) -> None:
        if isinstance(outcome, WriteResult):
            for index, after in states.items():
                topic.take(index, after)
                del self._left[index]
                _LOG.info(
                    "mirror altered: partition=%s-%d is_mirror=%s leader_epoch=%d cut=%s",
                    self._name,
                    index,
                    after.state.is_mirror,
                    after.state.leader_epoch,
                    after.state.cut,
                )
            self._elections.announce([(topic, index) for index in states])
            self._continue()
        elif isinstance(outcome, NodeError) and outcome.path == znodes.topic_config(self._name):
            self._continue()
        elif isinstance(outcome, NodeError):  # a leader has written its in-sync set
            wanted = [(self._name, topic.topic_id, index) for index in states]
            self._outbox.read_states(queries.partition_states(wanted), partial(self._states_read, topic, list(states)))
        else:
            self._fail(not_stored(f"alter mirror {self._name}", outcome))

    def _states_read(
        self, topic: TopicImage, indexes: list[int], found: list[FoundState | MalformedNodeError | None] | CoordinationError
    ) -> None:
        error = (
            found if isinstance(found, CoordinationError) else next((each for each in found if isinstance(each, MalformedNodeError)), None)
        )
        if isinstance(found, CoordinationError) or error is not None:
            assert error is not None
            self._fail(not_stored(f"alter mirror {self._name}", error))
            return
        for index, state in zip(indexes, found, strict=True):
            if isinstance(state, FoundState):
                self._image.take_read(topic, index, state)
            else:
                where = TopicPartition(self._name, index)
                self._outcomes[where] = PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {where} was deleted meanwhile")
                del self._left[index]
        self._continue()

    def _fail(self, error: PeerError) -> None:
        for index in self._left:
            self._outcomes[TopicPartition(self._name, index)] = error
        self._left.clear()
        self._end()

    def _end(self) -> None:
        self._image.free(self._name)
        self._ended()
