"""The values that hold: static ones below, dynamic ones above, synonyms in between; and whether a set of values may be given to a topic, or
to a broker while it runs.

For a broker's configuration the first of these that is set wins, and within each layer the configuration itself before its synonyms:
this broker's dynamic value, the cluster's dynamic default, the static value, the default of the table. For a topic's configuration: the
topic's own value, then the same over its synonyms among the broker's.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from moldau.model.config.definition import (
    ConfigDefinition,
    ConfigSource,
    ConfigValue,
    InvalidConfigError,
    Synonym,
    UpdateMode,
    format_value,
    parse_value,
)
from moldau.model.config.static import StaticConfig, unknown_name
from moldau.model.config.tables import BROKER
from moldau.model.config.tables.topic import TOPIC
from moldau.model.value import Value

_LOG = logging.getLogger(__name__)
V = TypeVar("V", bool, int, float, str, tuple[str, ...])


class Setting(Value):
    """A place where a value is given: under which name, as which text, in which layer."""

    name: str
    text: str | None
    source: ConfigSource


class ConfigValues:
    """Typed access to values by name. A wrong name or type is our own bug and raises KeyError or TypeError."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, ConfigValue] = {}

    def value(self, name: str) -> ConfigValue:
        """The value that holds; None when none is set and there is no default."""
        try:
            return self._values[name]
        except KeyError:
            value = self._values[name] = self._resolve(name)
            return value

    def _resolve(self, name: str) -> ConfigValue:
        raise NotImplementedError

    def int(self, name: str) -> int:
        """A whole number."""
        value = self._values.get(name)
        if type(value) is not int:
            value = _typed(name, self._resolve(name), int)
            self._values[name] = value
        return value

    def boolean(self, name: str) -> bool:
        """True or false."""
        value = self._values.get(name)
        return value if type(value) is bool else _typed(name, self.value(name), bool)

    def double(self, name: str) -> float:
        """A floating-point number."""
        return _typed(name, self.value(name), float)

    def string(self, name: str) -> str:
        """Text."""
        return _typed(name, self.value(name), str)

    def optional_string(self, name: str) -> str | None:
        """Text, or None when none is set."""
        return None if self.value(name) is None else self.string(name)

    def list(self, name: str) -> tuple[str, ...]:
        """The items of a list."""
        return _typed(name, self.value(name), tuple)


def _typed(name: str, value: ConfigValue, kind: type[V]) -> V:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}, not {kind.__name__}")
    return value


class BrokerConfig(ConfigValues):
    """A broker's configuration with its dynamic layers. `version` rises with every change, for those who keep values."""

    __slots__ = ("_cluster", "_own", "_topics", "static", "version")

    def __init__(self, static: StaticConfig | None = None) -> None:
        super().__init__()
        self.static = StaticConfig() if static is None else static
        self.version = 0
        self._own: Mapping[str, str] = {}
        self._cluster: Mapping[str, str] = {}

    def set_dynamic(self, *, own: Mapping[str, str], cluster: Mapping[str, str], nodes: tuple[str, str] = ("own", "cluster")) -> set[str]:
        """Replace the dynamic layers, of this broker and of the whole cluster; the names whose value has changed by it.

        What another version stored and this one does not take is left out, with a line in the log that names its place: `nodes` are those
        of `own` and `cluster`.
        """
        own, cluster = _usable(own, nodes[0]), _usable(cluster, nodes[1])
        if (own, cluster) == (self._own, self._cluster):  # as at most starts, for which all values would be worked out
            return set()
        before = {name: self.value(name) for name in BROKER}
        self._own, self._cluster = own, cluster
        self._values.clear()
        self.version += 1
        return {name for name, value in before.items() if self.value(name) != value}

    def derive(self, name: str, text: str, given_as: str) -> None:
        """Take a value that the start worked out from setting `given_as`, which was given: it is shown as given, too."""
        self.static.put(name, text, self.static.origin[given_as])
        self._values.clear()

    def settings(self, name: str) -> list[Setting]:
        """Every place that gives a value for `name`, winner first, down to the default."""
        return list(self._settings((name, *_names(BROKER[name].synonyms))))

    def topic_settings(self, name: str) -> list[Setting]:
        """The same for a topic's configuration that the topic does not set."""
        definition = TOPIC[name]
        if not definition.synonyms:
            return [Setting(name, format_value(definition, definition.default), ConfigSource.DEFAULT)]
        return list(self._settings(_names(definition.synonyms)))

    def topic(self, overrides: Mapping[str, str]) -> "TopicConfig":
        """The configuration of a topic that sets `overrides` itself."""
        return TopicConfig(self, overrides)

    def _layers(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        return (
            (ConfigSource.DYNAMIC_BROKER, self._own),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self._cluster),
            (ConfigSource.STATIC_BROKER, self.static.texts),
        )

    def _settings(self, names: Sequence[str]) -> Iterator[Setting]:
        yield from self._given(names)
        for each in names:
            if BROKER[each].default is not None:
                yield Setting(each, format_value(BROKER[each], BROKER[each].default), ConfigSource.DEFAULT)

    def _given(self, names: Sequence[str]) -> Iterator[Setting]:
        for source, texts in self._layers():
            for each in names:
                if each in texts:
                    yield Setting(each, texts[each], source)

    def first(self, synonyms: Sequence[Synonym]) -> ConfigValue:
        """The value of the first of these settings that is given or else has a default, converted where it is in another unit."""
        for texts in (self._own, self._cluster, self.static.texts):
            if texts:
                for synonym in synonyms:
                    if synonym.name in texts:
                        return synonym.convert(parse_value(BROKER[synonym.name], texts[synonym.name]))
        for synonym in synonyms:
            default = BROKER[synonym.name].default
            if default is not None:
                return default if synonym.factor == 1 else synonym.convert(default)
        return None

    def _resolve(self, name: str) -> ConfigValue:
        synonyms = BROKER[name].synonyms
        return self.first((Synonym(name), *synonyms))


def usable_by_topic(texts: Mapping[str, str], node: str) -> dict[str, str]:
    """What a topic stored at `node` sets, without what is not allowed: a line in the log names that."""
    return _usable(texts, node, TOPIC)


def _usable(texts: Mapping[str, str], node: str, table: Mapping[str, ConfigDefinition] = BROKER) -> dict[str, str]:
    usable = {}
    for name, text in texts.items():
        try:
            parse_value(table[name], text)
        except (KeyError, InvalidConfigError) as error:
            _LOG.warning("stored configuration not taken: node=%s name=%s reason=%s", node, name, error)
        else:
            usable[name] = text
    return usable


class TopicConfig(ConfigValues):
    """A topic's configuration on top of its broker's. A change of the broker's shows when a new one is made."""

    __slots__ = ("_broker", "overrides")

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        super().__init__()
        self._broker = broker
        self.overrides = dict(overrides)

    def settings(self, name: str) -> list[Setting]:
        """Every place that gives a value for `name`, winner first, down to the default."""
        below = self._broker.topic_settings(name)
        return [Setting(name, self.overrides[name], ConfigSource.DYNAMIC_TOPIC), *below] if name in self.overrides else below

    def _resolve(self, name: str) -> ConfigValue:
        definition = TOPIC[name]
        if name in self.overrides:
            return parse_value(definition, self.overrides[name])
        synonyms = definition.synonyms
        return self._broker.first(synonyms) if synonyms else definition.default


def _names(synonyms: tuple[Synonym, ...]) -> list[str]:
    return [synonym.name for synonym in synonyms]


def topic_definition(name: str) -> ConfigDefinition:
    """The definition of a topic's configuration. InvalidConfigError for an unknown one."""
    definition = TOPIC.get(name)
    if definition is None:
        raise InvalidConfigError(unknown_name(name, TOPIC, "topic configuration"), name)
    return definition


def dynamic_definition(name: str, *, for_all: bool) -> ConfigDefinition:
    """The definition of a broker's configuration that may be changed while it runs, for one broker or `for_all`. InvalidConfigError."""
    definition = BROKER.get(name)
    if definition is None:
        raise InvalidConfigError(unknown_name(name, BROKER), name)
    if definition.mode is UpdateMode.READ_ONLY:
        raise InvalidConfigError(f"{name} cannot be changed while the broker runs", name)
    if for_all and definition.mode is UpdateMode.PER_BROKER:
        raise InvalidConfigError(f"{name} can be set for a single broker only", name)
    return definition


def check_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Check what a topic sets: names, values, and values against each other. InvalidConfigError."""
    for name, text in overrides.items():
        parse_value(topic_definition(name), text)
    check_text(overrides, broker)
    config = broker.topic(overrides)
    low, high = config.int("min.compaction.lag.ms"), config.int("max.compaction.lag.ms")
    if low > high:
        raise InvalidConfigError(
            f"min.compaction.lag.ms ({low}) must not be larger than max.compaction.lag.ms ({high})", "min.compaction.lag.ms"
        )


def check_text(values: Mapping[str, str], broker: BrokerConfig) -> None:
    """Check that one topic, or the brokers, do not set more text than is kept for them. InvalidConfigError."""
    size, most = sum(len(name) + len(text) for name, text in values.items()), broker.int("resource.configs.max.bytes")
    if size > most:
        raise InvalidConfigError(
            f"{size} characters of configurations; resource.configs.max.bytes is {most}", max(values, key=_length(values))
        )


def _length(values: Mapping[str, str]) -> Callable[[str], int]:
    return lambda name: len(values[name])


def check_dynamic_broker(overrides: Mapping[str, str], *, for_all: bool) -> None:
    """Check what is set for a broker, or for all, while it runs: names and values. InvalidConfigError."""
    for name, text in overrides.items():
        parse_value(dynamic_definition(name, for_all=for_all), text)
