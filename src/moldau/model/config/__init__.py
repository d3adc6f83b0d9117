"""Configurations: one table of definitions, and the values that hold.

The table (:data:`BROKER`, :data:`TOPIC`) serves parsing, DescribeConfigs, AlterConfigs, error messages and the reference page. Names,
types, ranges and defaults are those of Kafka 4.3; where one differs, its definition says why. Standard library only, and quick to load.
"""

from moldau.model.config.definition import (
    ConfigDefinition,
    ConfigSource,
    ConfigType,
    ConfigValue,
    InvalidConfigError,
    Synonym,
    UpdateMode,
    describe_allowed,
    format_value,
    parse_value,
)
from moldau.model.config.static import StaticConfig, read_static, without_effect
from moldau.model.config.store import (
    BrokerConfig,
    Setting,
    TopicConfig,
    check_dynamic_broker,
    check_text,
    check_topic,
    dynamic_definition,
    topic_definition,
)
from moldau.model.config.tables import BROKER
from moldau.model.config.tables.topic import MIRROR_SOURCE, TOPIC

__all__ = [
    "BROKER",
    "MIRROR_SOURCE",
    "TOPIC",
    "BrokerConfig",
    "ConfigDefinition",
    "ConfigSource",
    "ConfigType",
    "ConfigValue",
    "InvalidConfigError",
    "Setting",
    "StaticConfig",
    "Synonym",
    "TopicConfig",
    "UpdateMode",
    "check_dynamic_broker",
    "check_text",
    "check_topic",
    "describe_allowed",
    "dynamic_definition",
    "format_value",
    "parse_value",
    "read_static",
    "topic_definition",
    "without_effect",
]
