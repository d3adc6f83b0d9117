"""What nodes of notification tell the controller: leaders have written in-sync sets, log directories have failed, tools or brokers have
changed settings.

Read where there are, or were, several brokers: a single one writes all that itself.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from moldau.cluster import queries
from moldau.cluster.changes import DropIsrNotifications, DropLogDirEvents
from moldau.cluster.control import LedPartition
from moldau.cluster.controller.broadcast import PARTITIONS_PER_STEP, Broadcast
from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage, TopicImage
from moldau.cluster.queries import FoundState, IsrNotifications, LogDirEvents
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition

_LOG = logging.getLogger(__name__)


class Notifications:
    """See the module. What comes while notifications are read is read afterwards."""

    def __init__(
        self,
        image: ClusterImage,
        outbox: Outbox,
        broadcast: Broadcast,
        *,
        isr_changed: Callable[[Sequence[TopicImage]], object],
        topics_reconfigured: Callable[[Sequence[str]], object],
        brokers_reconfigured: Callable[[], object],
        again: Callable[[], object],
    ) -> None:
        """`again` has `read` called after a while."""
        self._image = image
        self._outbox = outbox
        self._broadcast = broadcast
        self._isr_changed = isr_changed
        self._topics_reconfigured = topics_reconfigured
        self._brokers_reconfigured = brokers_reconfigured
        self._again = again
        self._config_names: dict[str, None] | None = None
        """Notifications of changed settings that were read; None before the first look."""
        self._is_reading_isr = False
        self._must_read_isr = False

    def read(self) -> None:
        """Look at all, and watch them."""
        self.read_configs()
        self.read_isr()
        self.read_log_dirs()

    def ignore(self, notification: str | None) -> None:
        """That one is of a change that elections do not depend on."""
        if self._config_names is not None and notification is not None:
            self._config_names[notification] = None

    # Settings

    def read_configs(self) -> None:
        """Take account of settings that were changed since the last look."""
        self._outbox.read(queries.notification_names(), self._config_names_read)

    def _config_names_read(self, names: Sequence[str] | CoordinationError) -> None:
        if isinstance(names, CoordinationError):
            _LOG.warning("notifications of changed settings not read; they are read again: reason=%s", names)
            self._again()
            return
        known, self._config_names = self._config_names, dict.fromkeys(names)
        new = [] if known is None else [name for name in names if name not in known]
        if new:
            self._outbox.read(queries.changed_entities(new), self._entities_read)

    def _entities_read(self, entities: list[str | MalformedNodeError] | CoordinationError) -> None:
        if isinstance(entities, CoordinationError):
            _LOG.warning("notifications of changed settings not read; all leaders are elected by the settings of now: reason=%s", entities)
            self._brokers_reconfigured()
            return
        kinds = [entity.partition("/") for entity in entities if isinstance(entity, str)]
        topics = [name for kind, _, name in kinds if kind == "topics" and name in self._image.topics]
        if topics:
            self._topics_reconfigured(topics)
        if any(kind == "brokers" for kind, _, _ in kinds):
            self._brokers_reconfigured()

    # Log directories

    def read_log_dirs(self) -> None:
        """Send brokers with failed log directories the states of all their replicas: they answer which are offline."""

        def read(found: LogDirEvents | CoordinationError) -> None:
            if isinstance(found, CoordinationError):
                _LOG.warning("notifications of failed log directories not read; they are read again: reason=%s", found)
                self._again()
                return
            for broker_id in found.broker_ids:
                topics = self._image.topics.values()
                led = [
                    LedPartition(topic.name, topic.topic_id, info, False)
                    for topic in topics
                    for info in topic.partitions
                    if info is not None and broker_id in info.replicas
                ]
                self._broadcast.lead(led, lambda _floors: None, to=[broker_id])
            for start in range(0, len(found.names), PARTITIONS_PER_STEP):
                self._outbox.write([DropLogDirEvents(found.names[start : start + PARTITIONS_PER_STEP])], lambda _outcome: None)

        self._outbox.read(queries.log_dir_events(), read)

    # In-sync sets

    def read_isr(self) -> None:
        """Take the states that leaders have written, have all brokers know of them, and remove the notifications."""
        if self._is_reading_isr:
            self._must_read_isr = True
            return
        self._is_reading_isr = True
        self._must_read_isr = False
        self._outbox.read(queries.isr_notifications(), self._isr_read)

    def _isr_read(self, found: IsrNotifications | CoordinationError) -> None:
        if isinstance(found, CoordinationError):
            self._isr_failed(found)
            return
        for error in found.malformed:
            _LOG.error("notification of in-sync sets removed unread: reason=%s", error)
        partitions = [each for each in found.partitions if self._has_state(each)]
        if not partitions:
            self._drop(found.names)
            return
        topics = [self._image.topics[each.topic] for each in partitions]
        wanted = [(topic.name, topic.topic_id, each.partition) for topic, each in zip(topics, partitions, strict=True)]

        def states_read(states: list[FoundState | MalformedNodeError | None] | CoordinationError) -> None:
            if isinstance(states, CoordinationError):
                self._isr_failed(states)
                return
            self._take(zip(topics, partitions, states, strict=True))
            self._drop(found.names)

        self._outbox.read_states(queries.partition_states(wanted), states_read)

    def _has_state(self, partition: TopicPartition) -> bool:
        topic = self._image.topics.get(partition.topic)
        return topic is not None and 0 <= partition.partition < len(topic.partitions) and topic.partitions[partition.partition] is not None

    def _take(self, states: Iterable[tuple[TopicImage, TopicPartition, FoundState | MalformedNodeError | None]]) -> None:
        changed: dict[TopicImage, None] = {}
        for topic, partition, state in states:
            if isinstance(state, MalformedNodeError):
                _LOG.error("in-sync set not taken: partition=%s reason=%s", partition, state)
            elif state is not None and self._image.topics.get(topic.name) is topic:
                self._image.take_read(topic, partition.partition, state)
                if topic.info(partition.partition).state_version == state.version:  # also where an election has read it first
                    changed[topic] = None
        if changed:
            self._broadcast.update([served for topic in changed if (served := topic.served()) is not None])
            self._isr_changed(list(changed))

    def _drop(self, names: Sequence[str]) -> None:
        """Remove notifications; one that is left is only read again."""
        for start in range(0, len(names), PARTITIONS_PER_STEP):
            self._outbox.write([DropIsrNotifications(names[start : start + PARTITIONS_PER_STEP])], lambda _outcome: None)
        self._isr_ended()

    def _isr_failed(self, error: CoordinationError) -> None:
        _LOG.warning("in-sync sets that leaders have changed not read; they are read again: reason=%s", error)
        self._again()
        self._isr_ended()

    def _isr_ended(self) -> None:
        self._is_reading_isr = False
        if self._must_read_isr:
            self.read_isr()
