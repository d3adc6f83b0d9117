"""The table of definitions is Kafka's, but where a definition says why it is not.

``kafka-4.3.0.tsv`` is what Apache Kafka 4.3.0 prints of itself (``kafka.server.KafkaConfig``, ``...log.LogConfig``): kind, name, type,
default, range, and the update mode or, for a topic's configuration, its first synonym.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.model.config import BROKER, TOPIC, ConfigDefinition, ConfigType, UpdateMode, format_value, parse_value

ROWS = Path(__file__).with_name("kafka-4.3.0.tsv").read_text().splitlines()
DEFINITIONS = {
    **{("topic", name): definition for name, definition in TOPIC.items()},
    **{("broker", name): each for name, each in BROKER.items()},
}


class KafkaRow(NamedTuple):
    kind: str
    name: str
    type: str
    default: str
    allowed: str
    mode_or_synonym: str

    @property
    def definition(self) -> ConfigDefinition:
        return DEFINITIONS[self.kind, self.name]


KAFKA = [KafkaRow(*line.split("\t")) for line in ROWS]
MODES_OF_LATER_PARTS = {"listeners", "listener.security.protocol.map"}
"""Kafka can change these while it runs; here they are read at the start."""


@pytest.mark.parametrize("row", KAFKA, ids=lambda row: f"{row.kind}:{row.name}")
def test_a_definition_is_kafkas_unless_it_says_why_not(row: KafkaRow) -> None:
    ours = row.definition
    assert not ours.own
    assert ours.type.name.lower() == row.type
    if row.kind == "topic":
        assert (ours.synonyms[0].name if ours.synonyms else "") == row.mode_or_synonym
    elif row.name not in MODES_OF_LATER_PARTS:
        assert ours.mode.value == row.mode_or_synonym
    default = format_value(ours, ours.default)
    kafka_default = None if row.default == "null" else row.default
    allowed = str(ours.allowed or "").removeprefix("of ")
    if not ours.deviation:
        assert default == kafka_default
        assert allowed == row.allowed or not row.allowed  # some ranges Kafka checks elsewhere and does not print


def test_every_definition_that_is_not_kafkas_says_why_it_exists() -> None:
    kafkas = {(row.kind, row.name) for row in KAFKA}
    own = {key for key, definition in DEFINITIONS.items() if definition.own}
    assert own == set(DEFINITIONS) - kafkas
    assert all(DEFINITIONS[key].deviation for key in own)


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=lambda definition: definition.name)
def test_a_default_is_a_value_that_is_allowed(definition: ConfigDefinition) -> None:
    text = format_value(definition, definition.default)
    assert text is None or parse_value(definition, text) == definition.default


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=lambda definition: definition.name)
def test_a_description_is_a_sentence(definition: ConfigDefinition) -> None:
    assert definition.doc[0].isupper() or definition.doc[0] == "`"
    assert definition.doc.endswith(".")
    assert definition.deviation == "" or definition.deviation.endswith(".")


def test_synonyms_are_brokers_configurations_of_the_same_type_family() -> None:
    numbers = {ConfigType.INT, ConfigType.LONG, ConfigType.SHORT}
    for definition in DEFINITIONS.values():
        for synonym in definition.synonyms:
            other = BROKER[synonym.name]
            assert other.type is definition.type or {other.type, definition.type} <= numbers, definition.name
            assert synonym.factor == 1 or other.type in numbers


def test_every_topic_configuration_that_is_in_effect_can_be_set_for_all_topics() -> None:
    """Through a synonym that may be changed while the broker runs. What lists partitions or a source makes sense for one topic alone."""
    of_one_topic = ("mirror.source", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    for name, definition in TOPIC.items():
        if definition.in_effect and name not in of_one_topic:
            assert BROKER[definition.synonyms[0].name].mode is UpdateMode.CLUSTER_WIDE, definition.name


def test_no_default_of_a_synonym_differs_from_the_topics_own() -> None:
    for definition in TOPIC.values():
        defaults = [
            synonym.convert(BROKER[synonym.name].default) for synonym in definition.synonyms if BROKER[synonym.name].default is not None
        ]
        assert not defaults or defaults[-1] == definition.default, definition.name
