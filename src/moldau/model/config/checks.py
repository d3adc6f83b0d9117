"""Whether a set of values may be given to a topic, or to a broker while it runs."""

from collections.abc import Callable, Mapping

from moldau.model.config.definition import ConfigDefinition, InvalidConfigError, UpdateMode, parse_value
from moldau.model.config.static import unknown_name
from moldau.model.config.store import BrokerConfig
from moldau.model.config.tables.broker import BROKER
from moldau.model.config.tables.topic import TOPIC


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
