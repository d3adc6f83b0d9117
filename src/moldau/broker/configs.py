"""Configurations of topics, of this broker, and of all brokers: described, and changed by way of the controller.

A description has the value, where it comes from, and everything below it that would be used without it.
"""

from collections import Counter
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.metadata.admin import ClusterAdmin, warn_without_effect
from moldau.cluster.controller.requests import AlterConfig, AlteredConfig, ConfigEdit, ConfigOperation, ConfigTarget
from moldau.cluster.snapshot import unknown_topic
from moldau.model.config import (
    BROKER,
    TOPIC,
    BrokerConfig,
    ConfigDefinition,
    ConfigSource,
    Setting,
    TopicConfig,
    UpdateMode,
    format_value,
)
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause
from moldau.model.topic_names import check_name

if TYPE_CHECKING:
    from moldau.cluster.snapshot import MetadataCache


class ResourceType(IntEnum):
    """What has configurations; the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Change(IntEnum):
    """What an incremental change does with a value; the protocol's numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class IncrementalChange(NamedTuple):
    """One step of an incremental change."""

    name: str
    change: int
    text: str | None


class Resource(NamedTuple):
    """A topic, a broker, or all brokers (empty name)."""

    type: int
    name: str


class ConfigDescription(NamedTuple):
    """A configuration as it is shown. `text` is None where nothing is set, and for a sensitive one."""

    definition: ConfigDefinition
    text: str | None
    source: ConfigSource
    read_only: bool
    synonyms: Sequence[Setting]


_OPERATIONS = {
    Change.SET: ConfigOperation.SET,
    Change.DELETE: ConfigOperation.DELETE,
    Change.APPEND: ConfigOperation.APPEND,
    Change.SUBTRACT: ConfigOperation.SUBTRACT,
}


class Configs:
    """See the module. Changes go in steps. Methods raise PeerError; then nothing has changed."""

    def __init__(self, cache: "MetadataCache", config: BrokerConfig, admin: ClusterAdmin, broker_id: int) -> None:
        self._cache = cache
        self._config = config
        self._admin = admin
        self._broker_id = broker_id

    def replace(
        self, resource: Resource, values: Sequence[tuple[str, str | None]], *, validate_only: bool = False, is_forwarded: bool = False
    ) -> Generator[Pause, None, list[str]]:
        """Give a resource exactly these configurations (AlterConfigs); those left out go back to their defaults.

        INVALID_REQUEST for a name that comes twice, a missing value, or what a running broker cannot change; INVALID_CONFIG for an
        unknown name or a topic's value that is not allowed; UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; POLICY_VIOLATION
        for what would lose records of a protected topic. Returns what has changed, for people. `is_forwarded`: whether another broker sends
        this on, perhaps for itself; NOT_CONTROLLER then if this one is not controller.
        """
        self._check_resource(resource, is_forwarded=is_forwarded)
        _check_once(name for name, _ in values)
        edits = [ConfigEdit(name, ConfigOperation.SET, _given(name, text)) for name, text in values]
        return (yield from self._alter(resource, edits, replaces=True, validate_only=validate_only, is_forwarded=is_forwarded))

    def edit(
        self, resource: Resource, edits: Sequence[IncrementalChange], *, validate_only: bool = False, is_forwarded: bool = False
    ) -> Generator[Pause, None, list[str]]:
        """Change single configurations of a resource (IncrementalAlterConfigs); codes as of `replace`.

        Appending to a list that is not set starts from the value that holds; to append what is there or subtract what is not does nothing.
        """
        self._check_resource(resource, is_forwarded=is_forwarded)
        _check_once(edit.name for edit in edits)
        wanted = []
        for name, change, text in edits:
            if change not in _OPERATIONS:
                raise PeerError(ErrorCode.INVALID_REQUEST, f"{name}: {change} is no kind of change")
            operation = _OPERATIONS[Change(change)]
            wanted.append(ConfigEdit(name, operation, "" if operation is ConfigOperation.DELETE else _given(name, text)))
        return (yield from self._alter(resource, wanted, replaces=False, validate_only=validate_only, is_forwarded=is_forwarded))

    def _alter(
        self, resource: Resource, edits: Sequence[ConfigEdit], *, replaces: bool, validate_only: bool, is_forwarded: bool
    ) -> Generator[Pause, None, list[str]]:
        if resource.type == ResourceType.TOPIC:
            where = ConfigTarget(resource.name)
        else:
            where = ConfigTarget(None, int(resource.name) if resource.name else None)
        outcome = yield from self._admin.alter(AlterConfig(where, edits, replaces, validate_only), forwards=not is_forwarded)
        if isinstance(outcome, PeerError):
            raise outcome
        _warn_without_effect(resource, outcome)
        return _changes(resource, outcome.before, outcome.after)

    def kind(self, resource: Resource) -> object:
        """Resources of one kind are described in the same way: topics that set the same, or the broker and all brokers each for itself.

        Raises as `describe`.
        """
        self._check_known(resource)
        return resource if resource.type != ResourceType.TOPIC else tuple(sorted(self._current(resource).items()))

    def describe(self, resource: Resource, names: Container[str] | None = None) -> list[ConfigDescription]:
        """The configurations of a resource, all or those in `names`; what is unknown among these is passed over.

        Of all brokers together only what is set for all of them.
        """
        self._check_known(resource)
        if resource.type == ResourceType.TOPIC:
            return topic_view(self._config.topic(self._current(resource)), names)
        return broker_view(self._config, names) if resource.name else defaults_view(self._current(resource), names)

    def resources(self, type_: int) -> list[str]:
        """Names of the resources of a type that have configurations, or may have."""
        if type_ == ResourceType.TOPIC:
            return list(self._cache.snapshot.topics)
        if type_ == ResourceType.BROKER:
            return [str(broker) for broker in self._cache.snapshot.brokers]
        return []

    def _check_known(self, resource: Resource) -> None:
        """As `_check_resource`, of what is shown here. Of a change the controller decides whether there is the topic: it may know more."""
        self._check_resource(resource)
        if resource.type == ResourceType.TOPIC and resource.name not in self._cache.snapshot.topics:
            raise unknown_topic(resource.name)

    def _check_resource(self, resource: Resource, *, is_forwarded: bool = False) -> None:
        if resource.type == ResourceType.TOPIC:
            if not resource.name:
                raise PeerError(ErrorCode.INVALID_REQUEST, "topics have no configurations in common: a topic has to be named")
            check_name(resource.name)
        elif resource.type == ResourceType.BROKER:
            allowed = map(str, self._cache.snapshot.brokers) if is_forwarded else (str(self._broker_id),)
            if resource.name and resource.name not in allowed:
                message = f"this is broker {self._broker_id}; '{resource.name}' is neither that nor empty, which means all brokers"
                raise PeerError(ErrorCode.INVALID_REQUEST, message)
        else:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"resources of type {resource.type} have no configurations here")

    def _current(self, resource: Resource) -> Mapping[str, str]:
        snapshot = self._cache.snapshot
        if resource.type == ResourceType.TOPIC:
            return snapshot.topic_config(resource.name)
        return snapshot.broker_config(self._broker_id if resource.name else None)


def _warn_without_effect(resource: Resource, altered: AlteredConfig) -> None:
    """Name those that are new: what was set before has had its line."""
    changed = {name: text for name, text in altered.after.items() if altered.before.get(name) != text}
    of = f"topic={resource.name}" if resource.type == ResourceType.TOPIC else f"broker={resource.name or 'all'}"
    warn_without_effect(of, changed, _definitions(resource))


def _definitions(resource: Resource) -> Mapping[str, ConfigDefinition]:
    return TOPIC if resource.type == ResourceType.TOPIC else BROKER


def _changes(resource: Resource, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What has changed, as ``name=before->after``; values that are secret are not shown."""
    definitions = _definitions(resource)

    def shown(values: Mapping[str, str], name: str) -> str:
        if name not in values:
            return "(default)"
        definition = definitions.get(name)
        return "(hidden)" if definition is None or definition.sensitive else values[name]

    names = sorted(before.keys() | after.keys())
    return [f"{name}={shown(before, name)}->{shown(after, name)}" for name in names if before.get(name) != after.get(name)]


def _given(name: str, text: str | None) -> str:
    if text is None:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{name} has no value")
    return text


def _check_once(names: Iterable[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"named twice: {', '.join(twice)}")


def topic_view(topic: TopicConfig, names: Container[str] | None) -> list[ConfigDescription]:
    """The configurations of a topic, all or those in `names`."""
    return [_view(definition, topic, read_only=False) for definition in _wanted(TOPIC, names)]


def broker_view(broker: BrokerConfig, names: Container[str] | None) -> list[ConfigDescription]:
    """The configurations of this broker, all or those in `names`."""
    return [_view(definition, broker, read_only=definition.mode is UpdateMode.READ_ONLY) for definition in _wanted(BROKER, names)]


def defaults_view(values: Mapping[str, str], names: Container[str] | None) -> list[ConfigDescription]:
    """What is set for all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    set_here = [definition for definition in _wanted(BROKER, names) if definition.name in values]
    return [_described(each, values[each.name], [Setting(each.name, values[each.name], source)], read_only=False) for each in set_here]


def _wanted(definitions: Mapping[str, ConfigDefinition], names: Container[str] | None) -> list[ConfigDefinition]:
    return [definition for name, definition in definitions.items() if names is None or name in names]


def _view(definition: ConfigDefinition, values: BrokerConfig | TopicConfig, *, read_only: bool) -> ConfigDescription:
    return _described(
        definition, format_value(definition, values.value(definition.name)), values.settings(definition.name), read_only=read_only
    )


def _described(definition: ConfigDefinition, text: str | None, settings: Sequence[Setting], *, read_only: bool) -> ConfigDescription:
    source = settings[0].source if settings else ConfigSource.DEFAULT
    if definition.sensitive:
        text = None
        settings = [setting._replace(text=None) for setting in settings]
    shown = [setting for setting in settings if setting.text is not None or definition.sensitive]
    return ConfigDescription(definition, text, source, read_only, shown)
