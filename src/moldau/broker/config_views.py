"""How configurations are shown: value, where it comes from, and everything below it that would stand in."""

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from moldau.model.config import BROKER, TOPIC, BrokerConfig, ConfigDefinition, ConfigSource, Setting, TopicConfig, UpdateMode, format_value


class Described(NamedTuple):
    """A configuration as it is shown. `text` is None where nothing is set, and for a sensitive one."""

    definition: ConfigDefinition
    text: str | None
    source: ConfigSource
    read_only: bool
    synonyms: Sequence[Setting]


def topic_view(topic: TopicConfig, names: Container[str] | None) -> list[Described]:
    """The configurations of a topic, all or those in `names`."""
    return [_view(definition, topic, read_only=False) for definition in _wanted(TOPIC, names)]


def broker_view(broker: BrokerConfig, names: Container[str] | None) -> list[Described]:
    """The configurations of this broker, all or those in `names`."""
    return [_view(definition, broker, read_only=definition.mode is UpdateMode.READ_ONLY) for definition in _wanted(BROKER, names)]


def defaults_view(values: Mapping[str, str], names: Container[str] | None) -> list[Described]:
    """What is set for all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    set_here = [definition for definition in _wanted(BROKER, names) if definition.name in values]
    return [_described(each, values[each.name], [Setting(each.name, values[each.name], source)], read_only=False) for each in set_here]


def _wanted(definitions: Mapping[str, ConfigDefinition], names: Container[str] | None) -> list[ConfigDefinition]:
    return [definition for name, definition in definitions.items() if names is None or name in names]


def _view(definition: ConfigDefinition, values: BrokerConfig | TopicConfig, *, read_only: bool) -> Described:
    return _described(
        definition, format_value(definition, values.value(definition.name)), values.settings(definition.name), read_only=read_only
    )


def _described(definition: ConfigDefinition, text: str | None, settings: Sequence[Setting], *, read_only: bool) -> Described:
    source = settings[0].source if settings else ConfigSource.DEFAULT
    if definition.sensitive:
        text = None
        settings = [setting._replace(text=None) for setting in settings]
    shown = [setting for setting in settings if setting.text is not None or definition.sensitive]
    return Described(definition, text, source, read_only, shown)
