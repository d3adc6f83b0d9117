"""Submits changes of the cluster to its controller, and waits for their outcomes.

A wait ends with the request's timeout (REQUEST_TIMED_OUT); the change may still be made. A connection that is lost ends nothing.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.cluster.controller.requests import (
    AlterConfig,
    AlteredConfig,
    AlterMirrors,
    AlterReassignments,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    ElectLeaders,
    GrowthSpec,
    GrowTopics,
    ListReassignments,
    PlannedTopic,
    Request,
    TopicChoice,
    TopicSpec,
)
from moldau.cluster.snapshot import unknown_topic
from moldau.model.config import TOPIC, ConfigDefinition, without_effect
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause, Suspension

if TYPE_CHECKING:
    from moldau.broker.metadata.membership import ClusterMembership
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.log.adopt import AdoptedTopic
    from moldau.model.config.store import BrokerConfig
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")
CREATED_AT_ONCE_MAX = 100
"""Topics that one Metadata request creates: about 1 ms each."""
NO_TIMEOUT = 0
WHOLE = ""
"""In place of a name: the request as a whole."""


def _nothing(_: object) -> None:
    """For a caller that needs no notification."""


class ClusterAdmin:
    """See the module. Methods work in steps and return one outcome per name: what was made, or the PeerError that says why not."""

    def __init__(self, membership: "ClusterMembership", config: "BrokerConfig", replicas: "ReplicaManager", clock: "Clock") -> None:
        self._membership = membership
        self._config = config
        self._replicas = replicas
        self._clock = clock
        self._waiting = 0
        """Changes that the controller has not answered yet, those included whose requests have timed out."""

    def create(
        self,
        topics: Sequence[TopicSpec],
        made: Callable[[PlannedTopic], object] = _nothing,
        *,
        validate_only: bool = False,
        waits: bool = False,
        forwards: bool = False,
        timeout_ms: int = NO_TIMEOUT,
    ) -> Generator[Pause, None, dict[str, PlannedTopic | PeerError]]:
        """Create topics, or only check them; `made` is called for each that was created, also after the timeout. With `forwards` this is
        sent on to the controller if that is another broker.

        Codes: those of :meth:`moldau.cluster.controller.planning.Planner.plan_all`; KAFKA_STORAGE_ERROR when the store of metadata fails
        or no log directory is left.
        """
        names = dict.fromkeys(spec.name for spec in topics)
        lost = self._replicas.storage_lost()
        if lost is not None:
            return dict.fromkeys(names, lost)

        def ended(outcomes: dict[str, PlannedTopic | PeerError]) -> None:
            for outcome in () if validate_only else outcomes.values():
                if isinstance(outcome, PlannedTopic):
                    made(outcome)
                    warn_without_effect(f"topic={outcome.name}", outcome.configs, TOPIC)

        outcomes: dict[str, PlannedTopic | PeerError]
        outcomes = yield from self._ask(CreateTopics(topics, validate_only, waits), names, ended, timeout_ms, forwards=forwards)
        lost = None if validate_only else self._replicas.storage_lost()
        if lost is None:
            return outcomes
        return {name: lost if isinstance(outcome, PlannedTopic) else outcome for name, outcome in outcomes.items()}

    def create_for_client(
        self, names: Sequence[str], made: Callable[[PlannedTopic], object]
    ) -> Generator[Pause, None, dict[str, PeerError | None]]:
        """Create topics that a client asked about, where `auto.create.topics.enable` allows it; by name why not, or None.

        Only the first `CREATED_AT_ONCE_MAX` are made, so that the answer comes soon. The client asks again for those that do not exist
        (UNKNOWN_TOPIC_OR_PARTITION, as Kafka says of topics that it is about to create), and gets the next.
        """
        if not self._config.boolean("auto.create.topics.enable"):
            return {name: unknown_topic(name) for name in names}
        outcomes = yield from self.create([TopicSpec(name) for name in names[:CREATED_AT_ONCE_MAX]], made, forwards=True)
        errors = {name: outcome if isinstance(outcome, PeerError) else None for name, outcome in outcomes.items()}
        for name, error in errors.items():
            if error is not None and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:  # being created by another request, or deleted
                errors[name] = unknown_topic(name)
        return errors | {name: unknown_topic(name) for name in names[CREATED_AT_ONCE_MAX:]}

    def grow(
        self,
        topics: Sequence[GrowthSpec],
        grown: Callable[[GrowthSpec], object] = _nothing,
        *,
        validate_only: bool = False,
        timeout_ms: int = NO_TIMEOUT,
    ) -> Generator[Pause, None, dict[str, PeerError | None]]:
        """Add partitions to topics, or only check; `grown` is called for each that has them. INVALID_REQUEST for a name that comes twice.

        Further codes: UNKNOWN_TOPIC_OR_PARTITION, those of :meth:`moldau.cluster.controller.planning.Planner.plan_growth`,
        KAFKA_STORAGE_ERROR.
        """
        by_name = {spec.name: spec for spec in topics}
        lost = self._replicas.storage_lost()
        if lost is not None:
            return dict.fromkeys(by_name, lost)

        def ended(outcomes: dict[str, PeerError | None]) -> None:
            for name, outcome in () if validate_only else outcomes.items():
                if outcome is None:
                    grown(by_name[name])

        outcomes: dict[str, PeerError | None]
        outcomes = yield from self._ask(GrowTopics(topics, validate_only), by_name, ended, timeout_ms)
        return outcomes if validate_only else self._unless_lost(outcomes)

    def delete(
        self, topics: Sequence[TopicChoice], deleted: Callable[[DeletedTopic], object] = _nothing, *, timeout_ms: int = NO_TIMEOUT
    ) -> Generator[Pause, None, dict[TopicChoice, DeletedTopic | PeerError]]:
        """Delete topics, and call `deleted` for each. What is begun is completed by the next controller if need be.

        The bytes go after `file.delete.delay.ms`. Codes: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, POLICY_VIOLATION for a protected
        topic; KAFKA_STORAGE_ERROR when the store of metadata fails or no log directory is left.
        """
        lost = self._replicas.storage_lost()
        if lost is not None:
            return dict.fromkeys(topics, lost)

        def ended(outcomes: dict[TopicChoice, DeletedTopic | PeerError]) -> None:
            for outcome in outcomes.values():
                if isinstance(outcome, DeletedTopic):
                    deleted(outcome)

        outcomes: dict[TopicChoice, DeletedTopic | PeerError]
        outcomes = yield from self._ask(DeleteTopics(topics), topics, ended, timeout_ms)
        lost = self._replicas.storage_lost()
        if lost is None:
            return outcomes
        return {choice: lost if isinstance(outcome, DeletedTopic) else outcome for choice, outcome in outcomes.items()}

    def alter(
        self,
        request: AlterConfig,
        altered: Callable[[AlteredConfig], object] = _nothing,
        *,
        forwards: bool = True,
        timeout_ms: int = NO_TIMEOUT,
    ) -> Generator[Pause, None, AlteredConfig | PeerError]:
        """Change a configuration, and have this broker obey it; with `forwards` also where another is controller. Codes as
        :func:`moldau.cluster.controller.configs.edited`.
        """

        def ended(outcomes: dict[str, Any]) -> None:
            if isinstance(outcomes[WHOLE], AlteredConfig):
                altered(outcomes[WHOLE])

        outcomes: dict[str, Any] = yield from self._ask(request, (WHOLE,), ended, timeout_ms, forwards=forwards)
        outcome: AlteredConfig | PeerError = outcomes[WHOLE]
        return outcome

    def submit(
        self, request: "ElectLeaders | AlterReassignments | ListReassignments | AlterMirrors", *, timeout_ms: int = NO_TIMEOUT
    ) -> Generator[Pause, None, dict[TopicPartition, Any] | PeerError]:
        """Have the controller carry out what concerns single partitions: the outcomes by partition, or why there are none."""
        outcomes: dict[Any, Any] = yield from self._ask(request, (WHOLE,), _nothing, timeout_ms)
        error = outcomes.get(WHOLE)
        return error if isinstance(error, PeerError) else outcomes

    def _unless_lost(self, outcomes: dict[str, PeerError | None]) -> dict[str, PeerError | None]:
        """The disk that was just written to may have been the last one."""
        lost = self._replicas.storage_lost()
        return outcomes if lost is None else {name: lost if outcome is None else outcome for name, outcome in outcomes.items()}

    def _ask(
        self,
        request: Request,
        names: "Iterable[K]",
        ended: Callable[[dict[K, T]], object],
        timeout_ms: int,
        *,
        forwards: bool = False,
    ) -> Generator[Pause, None, dict[K, T]]:
        """The outcomes by name; `ended` is called with them also after the request's deadline."""
        most = self._config.int("admin.requests.max")
        if self._waiting >= most:
            busy = PeerError(ErrorCode.REQUEST_TIMED_OUT, f"{most} changes of the cluster are waited for; admin.requests.max")
            return dict.fromkeys(names, busy)  # type: ignore[arg-type]
        outcomes: list[dict[K, T]] = []
        resumes: list[Callable[[], object]] = []

        def done(outcome: Any) -> None:
            self._waiting -= 1
            by_name = dict.fromkeys(names, outcome) if not isinstance(outcome, dict) else outcome
            if not isinstance(outcome, PeerError):
                ended(by_name)
            finish(by_name)

        def finish(by_name: dict[K, T]) -> None:
            if not outcomes:
                outcomes.append(by_name)
                for resume in resumes:
                    resume()

        self._waiting += 1
        self._membership.ask(request, done, forwards=forwards)
        if not outcomes:
            timer = None
            if timeout_ms > 0:
                late = PeerError(ErrorCode.REQUEST_TIMED_OUT, f"not done within {timeout_ms} ms; the change may still be made")
                timer = self._clock.call_later(timeout_ms / 1000, lambda: finish(dict.fromkeys(names, late)))  # type: ignore[arg-type]
            yield Suspension(resumes.append)
            if timer is not None:
                timer.cancel()
        return outcomes[0]


def adoption_of(topics: "Sequence[AdoptedTopic]", broker_id: int) -> CreateTopics:
    """The request that creates topics of which this broker has the logs already."""
    return CreateTopics(
        [
            TopicSpec(
                topic.name,
                assignments=[(index, [broker_id]) for index in range(topic.partitions)],
                configs=list(topic.configs.items()),
                topic_id=topic.topic_id,
                first_epochs=topic.first_epochs,
            )
            for topic in topics
        ]
    )


def warn_without_effect(of: str, values: Mapping[str, str], definitions: Mapping[str, ConfigDefinition]) -> None:
    """Name those of `values`, which are allowed, that have no effect; `of` says whose they are, such as ``topic=events``."""
    names = without_effect(values, definitions)
    if names:
        _LOG.warning("settings without effect in this version: %s names=%s", of, ",".join(names))
