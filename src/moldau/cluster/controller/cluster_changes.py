"""What an active controller does for those who ask, and for those who write topics and deletions into the tree themselves."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, assert_never

from moldau.cluster import queries
from moldau.cluster.changes import PutTopic
from moldau.cluster.controller.broadcast import Broadcast, StepRotation
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.events import Outbox, RequestReceived, Wake
from moldau.cluster.controller.image import ClusterImage, TopicImage
from moldau.cluster.controller.planning import Planner
from moldau.cluster.controller.requests import (
    AlterConfig,
    AlteredConfig,
    AlterMirrors,
    AlterReassignments,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    GrowTopics,
    ListReassignments,
    ReportLeader,
    ShutDownBroker,
)
from moldau.cluster.controller.topics import TopicChanges
from moldau.cluster.queries import FoundTopic
from moldau.cluster.store import AdminChanged, ConfigsChanged, DeletionsChanged, IsrChanged, LogDirsChanged, TopicChanged, TopicsChanged
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.config import BrokerConfig
from moldau.model.errors import CoordinationError

if TYPE_CHECKING:
    from moldau.cluster.controller.admin_nodes import AdminNodes
    from moldau.cluster.controller.configs import ConfigChanges
    from moldau.cluster.controller.deletions import TopicDeletions
    from moldau.cluster.controller.leadership import Leadership
    from moldau.cluster.controller.mirrors import MirrorChanges
    from moldau.cluster.controller.notifications import Notifications
    from moldau.cluster.controller.reassignments import Reassignments
    from moldau.cluster.controller.suspicion import SuspicionElections

_LOG = logging.getLogger(__name__)

ELECTION_SETTINGS = ("min.insync.replicas", "unclean.leader.election.enable")
READ_AFTER_MS = 1000
"""Changes by others are read so long after the first of them: each change of our own looks like one. And what failed is tried again."""


class ClusterChanges:
    """See the module."""

    def __init__(
        self,
        image: ClusterImage,
        outbox: Outbox,
        broadcast: Broadcast,
        elections: Elections,
        works: StepRotation,
        config: BrokerConfig,
        new_topic_id: Callable[[], bytes],
        elect_all: Callable[[], object],
    ) -> None:
        planner = Planner(image, config, new_topic_id)
        self.topics = TopicChanges(image, outbox, broadcast, elections, works, planner, self._wake, self.seen)
        self._deletions: TopicDeletions | None = None
        self._configs: ConfigChanges | None = None
        self._image = image
        self._elections = elections
        self._elect_all = elect_all
        self._leadership: Leadership | None = None
        self._suspicion: SuspicionElections | None = None
        self._notifications: Notifications | None = None
        self._admin_nodes: AdminNodes | None = None
        self._must_read_notifications = False
        self._must_forget_elr = False
        self._reassignments: Reassignments | None = None
        self._must_check_moves = False
        self._balance_due_ms: int | None = None
        self._must_elect = False
        """Whether the store has failed in an election."""
        self._outbox = outbox
        self._broadcast = broadcast
        self._works = works
        self._config = config
        self._new_topic_id = new_topic_id
        self._changed: dict[str, None] | None = None
        """Topics to read when the timer is due; None if nothing has changed."""
        self._is_waking = False

    def carry_out(self, asked: RequestReceived, now_ms: int) -> None:
        """Carry out a request, and answer."""
        match asked.request:
            case CreateTopics() as request:
                self.topics.create(asked.ticket, request)
            case GrowTopics() as request:
                self.topics.grow(asked.ticket, request)
            case DeleteTopics() as request:
                self.deletions.delete(asked.ticket, request)
            case AlterConfig() as request:
                self._config_changes().alter(asked.ticket, request, now_ms)
            case ElectLeaders() as request:
                self.leadership.elect(asked.ticket, request)
            case ShutDownBroker() as request:
                self.leadership.shut_down(asked.ticket, request)
            case ReportLeader() as request:
                self._suspicion_elections().report(request, now_ms)
                self._outbox.answer(asked.ticket, [])
            case AlterReassignments() as request:
                self._moves().alter(request, partial(self._outbox.answer, asked.ticket))
            case ListReassignments() as request:
                self._moves().list_ongoing(asked.ticket, request)
            case AlterMirrors() as request:
                self._mirror_changes().alter(asked.ticket, request)
            case _:
                assert_never(asked.request)

    @property
    def deletions(self) -> "TopicDeletions":
        """Loaded when first needed: most brokers delete no topic."""
        if self._deletions is None:
            from moldau.cluster.controller.deletions import TopicDeletions

            self._deletions = TopicDeletions(self._image, self._outbox, self._broadcast, self._works, self._config, self._wake)
        return self._deletions

    @property
    def leadership(self) -> "Leadership":
        """Loaded when first needed."""
        if self._leadership is None:
            from moldau.cluster.controller.leadership import Leadership

            self._leadership = Leadership(self._image, self._outbox, self._broadcast, self._elections, self._config)
        return self._leadership

    def suspicion_changed(self, now_ms: int) -> None:
        """Brokers do not answer, or answer again."""
        self._suspicion_elections().look(now_ms)

    def _suspicion_elections(self) -> "SuspicionElections":
        if self._suspicion is None:
            from moldau.cluster.controller.suspicion import SuspicionElections

            self._suspicion = SuspicionElections(self._image, self._elections, self._wake, self._config)
        return self._suspicion

    def _moves(self) -> "Reassignments":
        if self._reassignments is None:
            from moldau.cluster.controller.reassignments import Reassignments

            self._reassignments = Reassignments(
                self._image,
                self._outbox,
                self._broadcast,
                self._elections,
                completed=self._moved,
                again=self._check_moves_again,
            )
        return self._reassignments

    def _mirror_changes(self) -> "MirrorChanges":
        from moldau.cluster.controller.mirrors import MirrorChanges

        return MirrorChanges(self._image, self._outbox, self._elections, self._broadcast.epoch)

    def _moved(self) -> None:
        if self._admin_nodes is not None:
            self._admin_nodes.moved()

    def _check_moves_again(self) -> None:
        self._must_check_moves = True
        self._wake()

    def check_moves(self, topics: Iterable[TopicImage]) -> None:
        """Complete reassignments of these topics that can be."""
        moving = [topic for topic in topics if topic.adding or topic.removing]
        if moving:
            self._moves().check(moving)

    def _isr_changed(self, topics: Sequence[TopicImage]) -> None:
        self._elections.run([topic.name for topic in topics], then=lambda: self.check_moves(topics))

    def watch_others(self, now_ms: int) -> None:
        """Have what other brokers write into the tree seen, and leaders kept in balance. To be called when there are, or were, others."""
        if self._notifications is None:
            from moldau.cluster.controller.notifications import Notifications

            self._notifications = Notifications(
                self._image,
                self._outbox,
                self._broadcast,
                isr_changed=self._isr_changed,
                topics_reconfigured=lambda names: self._elections.run(names, forgets_elr=True),
                brokers_reconfigured=self._brokers_reconfigured,
                again=self._read_notifications_again,
            )
            self._notifications.read()
            from moldau.cluster.controller.admin_nodes import AdminNodes

            again = self._read_notifications_again
            self._admin_nodes = AdminNodes(self._image, self._outbox, self._elections, self._moves, again)
            self._admin_nodes.read()
        if self._balance_due_ms is None:
            self._schedule_balance(now_ms)

    def notified(self, event: ConfigsChanged | IsrChanged | LogDirsChanged | AdminChanged | None = None) -> None:
        """There is a notification or work of a tool, or may be of any kind (None)."""
        if self._notifications is None:
            return
        if event is None or isinstance(event, ConfigsChanged):
            self._notifications.read_configs()
        if event is None or isinstance(event, IsrChanged):
            self._notifications.read_isr()
        if event is None or isinstance(event, LogDirsChanged):
            self._notifications.read_log_dirs()
        if self._admin_nodes is not None and (event is None or isinstance(event, AdminChanged)):
            self._admin_nodes.read()

    def _read_notifications_again(self) -> None:
        self._must_read_notifications = True
        self._wake()

    def _brokers_reconfigured(self) -> None:
        """Defaults of topics may have changed: by those of now leaders are elected when this broker obeys them too."""
        self._must_forget_elr = True
        self._wake()

    def _altered(self, altered: AlteredConfig) -> None:
        """A setting was changed by way of this controller: most concern no election."""
        if self._notifications is not None and all(altered.before.get(name) == altered.after.get(name) for name in ELECTION_SETTINGS):
            self._notifications.ignore(altered.notification)

    def _schedule_balance(self, now_ms: int) -> None:
        interval_ms = self._config.int("leader.imbalance.check.interval.seconds") * 1000
        self._balance_due_ms = now_ms + interval_ms
        self._outbox.effects.append(Wake(interval_ms))

    def _config_changes(self) -> "ConfigChanges":
        if self._configs is None:
            from moldau.cluster.controller.configs import ConfigChanges

            self._configs = ConfigChanges(self._image, self._outbox, self._elections, self._config, self._altered)
        return self._configs

    def brokers_changed(self) -> None:
        """Brokers were registered, or have ended."""
        if self._deletions is not None:
            self._deletions.brokers_changed()
        self.check_moves(self._image.topics.values())

    # What others write

    def seen(self, event: TopicsChanged | DeletionsChanged | TopicChanged) -> None:
        """Something has changed; it may be our own change."""
        if self._changed is None:
            self._changed = {}
            self._wake()
        if isinstance(event, TopicChanged):
            self._changed[event.name] = None

    def repeat_elections(self) -> None:
        """Elect for all partitions after a while."""
        self._must_elect = True
        self._wake()

    def _wake(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self._outbox.effects.append(Wake(READ_AFTER_MS))

    def due(self, now_ms: int) -> None:
        """Continue what a failure of the store has left unfinished, read what has changed, and look at the balance of leaders."""
        self._is_waking = False
        if self._balance_due_ms is not None and now_ms >= self._balance_due_ms:
            if self._config.boolean("auto.leader.rebalance.enable"):
                self.leadership.rebalance()
            self._schedule_balance(now_ms)
        if self._suspicion is not None:
            self._suspicion.look(now_ms)
        if self._must_read_notifications:
            self._must_read_notifications = False
            self.notified()
        if self._must_forget_elr:
            self._must_forget_elr = False
            self._elections.run(list(self._image.topics), forgets_elr=True)
        if self._must_check_moves:
            self._must_check_moves = False
            self.check_moves(self._image.topics.values())
        if self._must_elect:
            self._must_elect = False
            self._elect_all()
        self.topics.resume_unfinished()
        if self._deletions is not None:
            self._deletions.resume_unfinished()
        if self._changed is None:
            return
        changed, self._changed = self._changed, None

        def names_read(found: tuple[Sequence[str], Sequence[str]] | CoordinationError) -> None:
            if isinstance(found, CoordinationError):
                self._failed([], found)
                return
            names, marks = found
            topics, deleting, is_free = self._image.topics, self._image.deleting, self._image.is_free
            marked = [name for name in marks if name not in deleting]
            wanted = [name for name in names if name not in topics and name not in deleting]
            if not all(map(is_free, (*marked, *wanted))):  # what is done for a name now may fail, as one of its nodes is there already
                self._look_again([])
            marked, wanted = list(filter(is_free, marked)), list(filter(is_free, wanted))
            there = dict.fromkeys(names)
            wanted += (name for name in marked if name in there and name not in wanted)
            self._read(wanted, marked)

        def versions_read(versions: dict[str, int] | CoordinationError) -> None:
            if isinstance(versions, CoordinationError):
                self._failed(watch, versions)
                return
            known = self._image.topics
            self._read([name for name, version in versions.items() if name in known and known[name].version < version], [])

        self._outbox.read(queries.topic_names(), names_read)
        watch = [name for name, topic in self._image.topics.items() if name in changed or not topic.is_watched]
        for name in watch:
            self._image.topics[name].is_watched = True
        self._outbox.read(queries.topic_versions(watch), versions_read)

    def _failed(self, names: Sequence[str], error: CoordinationError) -> None:
        """A read has failed, of these topics or of all names: it is repeated, for its watches too, which it may not have set."""
        if isinstance(error, MalformedNodeError):  # a watch sees it replaced
            _LOG.error("topics that others have changed not read; they are read with the next change: reason=%s", error)
        else:
            _LOG.warning("topics that others have changed not read; they are read again: reason=%s", error)
            self._look_again(names)

    def _look_again(self, names: Sequence[str]) -> None:
        """Look again when the timer is due, at these topics and at names that are not known."""
        self.seen(TopicsChanged())
        for name in names:
            self.seen(TopicChanged(name))

    def _read(self, names: Sequence[str], marked: Sequence[str]) -> None:
        if names or marked:
            self._outbox.read_states(queries.topics(names), lambda found: self._topics_read(names, found, marked))

    def _topics_read(self, names: Sequence[str], found: list[FoundTopic] | CoordinationError, marked: Sequence[str]) -> None:
        if isinstance(found, CoordinationError):
            self._failed(names, found)
            return
        by_name = {topic.name: topic for topic in found}
        for name in marked:
            self.deletions.resume(name, by_name.pop(name, None))
        for name, topic in by_name.items():
            known = self._image.topics.get(name)
            if not self._image.is_free(name):  # busy since it was read
                self._look_again([name])
                continue
            if not topic.node.replicas:
                continue
            if known is None:
                topic_id = topic.node.topic_id or self._new_topic_id()
                if topic.node.topic_id is None:
                    self._outbox.write([PutTopic(name, topic_id, topic.node.replicas, topic.version)], lambda _outcome: None)
                    topic = topic._replace(version=topic.version + 1)
                known = self._image.add(topic, topic_id)
                known.unsent = range(len(known.partitions))
            elif known.topic_id == topic.node.topic_id and known.version < topic.version:
                self._image.grow(known, topic.node.replicas[len(known.replicas) :], topic.version)
            if known.missing or known.unsent:
                self.topics.complete(known)
