"""Configurations that are changed and described while the broker runs: those of topics, of this broker, and of all brokers.

A change is checked as a whole, written in one transaction, and then taken up at once. After a restart `load` finds it again.
"""

from collections import Counter
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from moldau.broker.config_views import Described, broker_view, defaults_view, topic_view
from moldau.broker.host import PartitionHost
from moldau.broker.ineffective import warn_without_effect
from moldau.broker.store_errors import reported
from moldau.broker.topics import unknown_topic
from moldau.cluster.protected_topics import check_change
from moldau.cluster.registry import Registry
from moldau.model.config import (
    BROKER,
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
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause
from moldau.model.topic_names import check_name


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


class Edit(NamedTuple):
    """One step of an incremental change."""

    name: str
    change: int
    text: str | None


class Resource(NamedTuple):
    """A topic, a broker, or all brokers (empty name)."""

    type: int
    name: str


class Configs:
    """See the module. Changes go in steps. Methods raise PeerError; then nothing has changed."""

    def __init__(self, registry: Registry, config: BrokerConfig, host: PartitionHost, broker_id: int) -> None:
        self._registry = registry
        self._config = config
        self._host = host
        self._broker_id = broker_id

    def load(self) -> set[str]:
        """Take up what is stored, from earlier runs too; the broker's configurations that have changed by it."""
        snapshot = self._registry.snapshot
        return self._config.set_dynamic(own=snapshot.broker_config(self._broker_id), cluster=snapshot.broker_config(None))

    def replace(
        self, resource: Resource, values: Sequence[tuple[str, str | None]], *, validate_only: bool = False
    ) -> Generator[Pause, None, list[str]]:
        """Give a resource exactly these configurations (AlterConfigs); those left out go back to their defaults.

        INVALID_REQUEST for a name that comes twice, a missing value, or what a running broker cannot change; INVALID_CONFIG for an
        unknown name or a topic's value that is not allowed; UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; POLICY_VIOLATION
        for what would lose records of a protected topic. Returns what has changed, for people.
        """
        yield from self._registry.writable()
        self._check_resource(resource)
        _check_once(name for name, _ in values)
        return (yield from self._change(resource, {name: _given(name, text) for name, text in values}, validate_only))

    def edit(self, resource: Resource, edits: Sequence[Edit], *, validate_only: bool = False) -> Generator[Pause, None, list[str]]:
        """Change single configurations of a resource (IncrementalAlterConfigs); codes as of `replace`.

        Appending to a list that is not set starts from the value that holds; to append what is there or subtract what is not does nothing.
        """
        yield from self._registry.writable()
        self._check_resource(resource)
        _check_once(edit.name for edit in edits)
        values = dict(self._current(resource))
        for edit in edits:
            self._edit(resource, values, edit)
        return (yield from self._change(resource, values, validate_only))

    def kind(self, resource: Resource) -> object:
        """Resources of one kind are described in the same way: topics that set the same, or the broker and all brokers each for itself.

        Raises as `describe`.
        """
        self._check_resource(resource)
        return resource if resource.type != ResourceType.TOPIC else tuple(sorted(self._current(resource).items()))

    def describe(self, resource: Resource, names: Container[str] | None = None) -> list[Described]:
        """The configurations of a resource, all or those in `names`; what is unknown among these is passed over.

        Of all brokers together only what is set for all of them.
        """
        self._check_resource(resource)
        if resource.type == ResourceType.TOPIC:
            return topic_view(self._config.topic(self._current(resource)), names)
        return broker_view(self._config, names) if resource.name else defaults_view(self._current(resource), names)

    def resources(self, type_: int) -> list[str]:
        """Names of the resources of a type that have configurations, or may have."""
        if type_ == ResourceType.TOPIC:
            return list(self._registry.snapshot.topics)
        if type_ == ResourceType.BROKER:
            return [str(broker) for broker in self._registry.snapshot.brokers]
        return []

    def _check_resource(self, resource: Resource) -> None:
        if resource.type == ResourceType.TOPIC:
            if not resource.name:
                raise PeerError(ErrorCode.INVALID_REQUEST, "topics have no configurations in common: a topic has to be named")
            check_name(resource.name)
            if resource.name not in self._registry.snapshot.topics:
                raise unknown_topic(resource.name)
        elif resource.type == ResourceType.BROKER:
            if resource.name and resource.name != str(self._broker_id):
                message = f"this is broker {self._broker_id}; '{resource.name}' is neither that nor empty, which means all brokers"
                raise PeerError(ErrorCode.INVALID_REQUEST, message)
        else:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"resources of type {resource.type} have no configurations here")

    def _current(self, resource: Resource) -> Mapping[str, str]:
        snapshot = self._registry.snapshot
        if resource.type == ResourceType.TOPIC:
            return snapshot.topic_config(resource.name)
        return snapshot.broker_config(self._broker_id if resource.name else None)

    def _edit(self, resource: Resource, values: dict[str, str], edit: Edit) -> None:
        match edit.change:
            case Change.DELETE:
                values.pop(edit.name, None)
            case Change.SET:
                values[edit.name] = _given(edit.name, edit.text)
            case Change.APPEND | Change.SUBTRACT:
                items = parse_value(_list_definition(resource, edit), _given(edit.name, edit.text))
                now = self._value(resource, edit.name, values)
                assert isinstance(items, tuple)
                assert isinstance(now, tuple)
                if edit.change == Change.APPEND:
                    kept = (*now, *(item for item in items if item not in now))
                else:
                    kept = tuple(item for item in now if item not in items)
                values[edit.name] = ",".join(kept)
            case _:
                raise PeerError(ErrorCode.INVALID_REQUEST, f"{edit.name}: {edit.change} is no kind of change")

    def _value(self, resource: Resource, name: str, values: Mapping[str, str]) -> ConfigValue:
        if name in values:
            return parse_value(_definitions(resource)[name], values[name])
        holder = self._config.topic({}) if resource.type == ResourceType.TOPIC else self._config
        value = holder.value(name)
        return () if value is None else value

    def _change(self, resource: Resource, values: Mapping[str, str], validate_only: bool) -> Generator[Pause, None, list[str]]:
        if resource.type == ResourceType.TOPIC:
            check_topic(values, self._config)
            topic = self._config.topic
            check_change(self._config, resource.name, topic(self._current(resource)), topic(values))
        else:
            _check_broker(values, for_all=not resource.name)
            check_text(values, self._config)
        if validate_only:
            return []
        before = self._current(resource)
        values = {name: _normal(_definitions(resource)[name], text) for name, text in values.items()}
        self._warn_without_effect(resource, values)
        if resource.type == ResourceType.TOPIC:
            with reported(f"configure topic {resource.name}"):
                yield from self._registry.set_topic_config(resource.name, values)
            yield from self._host.reconfigure_topic(resource.name)
            return _changes(resource, before, values)
        with reported(f"configure broker {resource.name or 'all'}"):
            yield from self._registry.set_broker_config(self._broker_id if resource.name else None, values)
        changed = self.load()
        if changed:
            yield from self._host.reconfigure_broker(changed)
        return _changes(resource, before, values)

    def _warn_without_effect(self, resource: Resource, values: Mapping[str, str]) -> None:
        """Name those that are new: what was set before has had its line."""
        before = self._current(resource)
        changed = {name: text for name, text in values.items() if before.get(name) != text}
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


def _list_definition(resource: Resource, edit: Edit) -> ConfigDefinition:
    definition = _definitions(resource).get(edit.name)
    if definition is None:
        raise InvalidConfigError(f"unknown configuration '{edit.name}'", edit.name)
    if definition.type is not ConfigType.LIST:
        raise InvalidConfigError(f"{edit.name} is no list: nothing can be appended to it or subtracted from it", edit.name)
    return definition


def _given(name: str, text: str | None) -> str:
    if text is None:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{name} has no value")
    return text


def _normal(definition: ConfigDefinition, text: str) -> str:
    return format_value(definition, parse_value(definition, text)) or ""


def _check_once(names: Iterable[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"named twice: {', '.join(twice)}")


def _check_broker(values: Mapping[str, str], *, for_all: bool) -> None:
    """As Kafka does, what a running broker does not take is an invalid request; an unknown name is an invalid configuration."""
    try:
        check_dynamic_broker(values, for_all=for_all)
    except InvalidConfigError as error:
        if error.name in BROKER:
            raise PeerError(ErrorCode.INVALID_REQUEST, error.message) from error
        raise
