"""Changes of configurations. The edits of a request are applied to what the tree has, so that of two requests at once none is lost.

With another `min.insync.replicas` of a topic its eligible leader replicas stop being so, by the same write: below a lower minimum leaders
commit without them, as soon as they know of it (KIP-966). What one write has no room for is written when brokers have been notified; until
then an election goes by the minimum of now, see `election_rules`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice

from moldau.cluster import queries, znodes
from moldau.cluster.changes import Change, DropNotifications, PutBrokerConfig, PutTopicConfig
from moldau.cluster.controller.broadcast import PARTITIONS_PER_STEP
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage, TopicImage
from moldau.cluster.controller.planning import not_stored
from moldau.cluster.controller.requests import AlterConfig, AlteredConfig, ConfigEdit, ConfigOperation, ConfigTarget
from moldau.cluster.internal_topics import check_change
from moldau.cluster.queries import FoundState
from moldau.cluster.snapshot import unknown_topic
from moldau.cluster.store import WriteResult
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.config import (
    BROKER,
    MIRROR_SOURCE,
    TOPIC,
    BrokerConfig,
    ConfigDefinition,
    ConfigType,
    ConfigValue,
    InvalidConfigError,
    check_dynamic_broker,
    check_text,
    check_topic,
    format_value,
    parse_value,
)
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.ports.coordination import NodeError

NOTIFICATIONS_KEPT_MS = 15 * 60 * 1000
"""Notifications of changed configurations are removed after this time."""
NOTIFICATIONS_MAX = 1000
"""More of them are removed before."""
REMOVED_MAX = 200
"""That are removed at once."""
REMOVAL_INTERVAL_MS = 60 * 1000
REMOVAL_INTERVAL_CHANGES = 100
"""Old ones are searched for after so much time, and after so many changes: that takes as long as there are many."""


class ConfigChanges:
    """See the module."""

    def __init__(
        self, image: ClusterImage, outbox: Outbox, elections: Elections, config: BrokerConfig, altered: Callable[[AlteredConfig], object]
    ) -> None:
        """`altered` is called with each change that was written, before its answer."""
        self._image = image
        self._outbox = outbox
        self._elections = elections
        self._config = config
        self._altered = altered
        self._changes = 0
        self._removal_due_ms = 0

    def alter(self, ticket: int, request: AlterConfig, now_ms: int) -> None:
        """Change a configuration, or only check; answer."""
        self._image.when_free(_path(request.resource), partial(self._alter, ticket, request, now_ms))

    def _alter(self, ticket: int, request: AlterConfig, now_ms: int) -> None:
        resource = request.resource
        path = _path(resource)

        def end(outcome: AlteredConfig | PeerError) -> None:
            self._outbox.answer(ticket, outcome)
            self._image.free(path)

        def read(found: tuple[dict[str, str], int | None] | CoordinationError) -> None:
            if isinstance(found, CoordinationError):
                end(not_stored(f"configure {_shown(resource)}", found))
                return
            before, version = found
            try:
                after = edited(self._config, request, before)
            except PeerError as error:
                end(error.as_value())
                return
            if request.validate_only:
                end(AlteredConfig(before, before, None))
            else:
                write(before, after, version)

        def write(before: Mapping[str, str], after: Mapping[str, str], version: int | None) -> None:
            topic = self._image.topics.get(resource.topic) if resource.topic is not None else None
            ended = {} if topic is None else self._ended_eligibility(topic, before, after)
            changes: list[Change] = [_change(resource, after, version)]
            if topic is not None:
                changes += (topic.change(index, after) for index, after in ended.items())
            self._outbox.write(changes, partial(written, before, after, topic, ended))

        def written(
            before: Mapping[str, str],
            after: Mapping[str, str],
            topic: TopicImage | None,
            ended: Mapping[int, FoundState],
            outcome: WriteResult | CoordinationError,
        ) -> None:
            if isinstance(outcome, WriteResult):
                if topic is not None and ended:
                    self._eligibility_ended(topic, ended)
                altered = AlteredConfig(before, after, outcome.notification)
                self._altered(altered)
                end(altered)
                self._remove_old(now_ms)
            elif isinstance(outcome, NodeError) and outcome.path == path:  # another writer has changed it, or deleted the topic
                self._alter(ticket, request, now_ms)
            elif isinstance(outcome, NodeError) and topic is not None and ended:  # a leader has written its in-sync set
                wanted = [(topic.name, topic.topic_id, index) for index in ended]
                self._outbox.read_states(queries.partition_states(wanted), partial(states_read, topic, ended))
            else:
                end(not_stored(f"configure {_shown(resource)}", outcome))

        def states_read(
            topic: TopicImage, indexes: Mapping[int, object], found: list[FoundState | MalformedNodeError | None] | CoordinationError
        ) -> None:
            if isinstance(found, CoordinationError):
                end(not_stored(f"configure {_shown(resource)}", found))
                return
            for index, state in zip(indexes, found, strict=True):
                if isinstance(state, MalformedNodeError):
                    end(not_stored(f"configure {_shown(resource)}", state))
                    return
                if state is not None:
                    topic.take(index, state)
            self._alter(ticket, request, now_ms)

        if resource.topic is not None and resource.topic not in self._image.topics:
            end(unknown_topic(resource.topic))
        else:
            self._outbox.read(queries.config(path), read)

    def _ended_eligibility(self, topic: TopicImage, before: Mapping[str, str], after: Mapping[str, str]) -> dict[int, FoundState]:
        """The states of partitions that have eligible replicas without them, if the minimum changes."""
        if self._elections.rules_of(before).min_isr == self._elections.rules_of(after).min_isr:
            return {}
        eligible = (index for index, info in enumerate(topic.partitions) if info is not None and info.elr)
        return {index: topic.next(index, self._elections.without_eligible(topic, index)) for index in islice(eligible, PARTITIONS_PER_STEP)}

    def _eligibility_ended(self, topic: TopicImage, states: Mapping[int, FoundState]) -> None:
        if self._image.topics.get(topic.name) is topic:
            for index, after in states.items():
                topic.take(index, after)
            self._elections.announce([(topic, index) for index in states])

    def _remove_old(self, now_ms: int) -> None:
        """Remove notifications that brokers have had the time to see."""
        self._changes += 1
        if now_ms < self._removal_due_ms and self._changes % REMOVAL_INTERVAL_CHANGES:
            return
        self._removal_due_ms = now_ms + REMOVAL_INTERVAL_MS

        def read(names: Sequence[str] | CoordinationError) -> None:
            if names and not isinstance(names, CoordinationError):
                self._outbox.write([DropNotifications(names)], lambda _outcome: None)

        self._outbox.read(queries.old_notifications(now_ms - NOTIFICATIONS_KEPT_MS, NOTIFICATIONS_MAX, REMOVED_MAX), read)


def edited(config: BrokerConfig, request: AlterConfig, before: Mapping[str, str]) -> dict[str, str]:
    """What is set after a change.

    INVALID_REQUEST for what a running broker cannot change; INVALID_CONFIG for an unknown name or a topic's value that is not allowed;
    POLICY_VIOLATION for what would lose records of a protected topic. Appending to a list that is not set starts from the value that
    holds; to append what is there or subtract what is not does nothing.
    """
    resource = request.resource
    values = {} if request.replaces else dict(before)
    for edit in request.edits:
        _edit(config, resource, values, edit)
    if resource.topic is None:
        _check_broker(values, for_all=resource.broker_id is None)
        check_text(values, config)
    else:
        check_topic(values, config)
        _check_source(resource.topic, before, values)
        check_change(config, resource.topic, config.topic(before), config.topic(values))
    return {name: format_value(definition, parse_value(definition, values[name])) or "" for name, definition in _named(resource, values)}


def definitions_of(resource: ConfigTarget) -> Mapping[str, ConfigDefinition]:
    """The configurations that a resource can have."""
    return BROKER if resource.topic is None else TOPIC


def _edit(config: BrokerConfig, resource: ConfigTarget, values: dict[str, str], edit: ConfigEdit) -> None:
    match edit.operation:
        case ConfigOperation.DELETE:
            values.pop(edit.name, None)
        case ConfigOperation.SET:
            values[edit.name] = edit.text
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            items = parse_value(_list_definition(resource, edit.name), edit.text)
            now = _value(config, resource, edit.name, values)
            assert isinstance(items, tuple)
            assert isinstance(now, tuple)
            if edit.operation is ConfigOperation.APPEND:
                kept = (*now, *(item for item in items if item not in now))
            else:
                kept = tuple(item for item in now if item not in items)
            values[edit.name] = ",".join(kept)


def _value(config: BrokerConfig, resource: ConfigTarget, name: str, values: Mapping[str, str]) -> ConfigValue:
    if name in values:
        return parse_value(definitions_of(resource)[name], values[name])
    value = (config if resource.topic is None else config.topic({})).value(name)
    return () if value is None else value


def _list_definition(resource: ConfigTarget, name: str) -> ConfigDefinition:
    definition = definitions_of(resource).get(name)
    if definition is None:
        raise InvalidConfigError(f"unknown configuration '{name}'", name)
    if definition.type is not ConfigType.LIST:
        raise InvalidConfigError(f"{name} is no list: nothing can be appended to it or subtracted from it", name)
    return definition


def _check_source(topic: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Whether a topic is a mirror is in the states of its partitions too, which this change does not write."""
    if before.get(MIRROR_SOURCE, "") != after.get(MIRROR_SOURCE, ""):
        raise InvalidConfigError(
            f"topic '{topic}': {MIRROR_SOURCE} is set when a topic is created, and cannot be altered; a mirror ends with"
            f" `moldau mirror promote`",
            MIRROR_SOURCE,
        )


def _check_broker(values: Mapping[str, str], *, for_all: bool) -> None:
    """As Kafka does, what a running broker does not take is an invalid request; an unknown name is an invalid configuration."""
    try:
        check_dynamic_broker(values, for_all=for_all)
    except InvalidConfigError as error:
        if error.name in BROKER:
            raise PeerError(ErrorCode.INVALID_REQUEST, error.message) from error
        raise


def _named(resource: ConfigTarget, values: Mapping[str, str]) -> list[tuple[str, ConfigDefinition]]:
    definitions = definitions_of(resource)
    return [(name, definitions[name]) for name in values]


def _change(resource: ConfigTarget, values: Mapping[str, str], version: int | None) -> Change:
    if resource.topic is not None:
        return PutTopicConfig(resource.topic, values, version)
    return PutBrokerConfig(resource.broker_id, values, version)


def _path(resource: ConfigTarget) -> str:
    return znodes.broker_config(resource.broker_id) if resource.topic is None else znodes.topic_config(resource.topic)


def _shown(resource: ConfigTarget) -> str:
    if resource.topic is not None:
        return f"topic {resource.topic}"
    return "broker all" if resource.broker_id is None else f"broker {resource.broker_id}"
