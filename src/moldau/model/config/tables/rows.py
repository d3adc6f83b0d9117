"""Short forms of :class:`ConfigDefinition` for the tables, one per type, so that a table reads as a table."""

from collections.abc import Iterable
from typing import TypedDict, Unpack

from moldau.model.config.definition import ConfigDefinition, ConfigType, Synonym, UpdateMode, Validator

DAY_MS = 86_400_000
CLUSTER = UpdateMode.CLUSTER_WIDE
OWN_BROKER = UpdateMode.PER_BROKER


class DefinitionOptions(TypedDict, total=False):
    """What a row may add to name, default and description."""

    allowed: Validator
    mode: UpdateMode
    synonyms: tuple[Synonym, ...]
    sensitive: bool
    in_effect: bool
    own: bool
    deviation: str


def boolean(name: str, default: bool, doc: str, **options: Unpack[DefinitionOptions]) -> ConfigDefinition:
    """A row of true or false."""
    return ConfigDefinition(name, ConfigType.BOOLEAN, default, doc, **options)


def integer(name: str, default: int | None, doc: str, **options: Unpack[DefinitionOptions]) -> ConfigDefinition:
    """A row of a 32-bit number."""
    return ConfigDefinition(name, ConfigType.INT, default, doc, **options)


def short(name: str, default: int, doc: str, **options: Unpack[DefinitionOptions]) -> ConfigDefinition:
    """A row of a 16-bit number."""
    return ConfigDefinition(name, ConfigType.SHORT, default, doc, **options)


def long(name: str, default: int | None, doc: str, **options: Unpack[DefinitionOptions]) -> ConfigDefinition:
    """A row of a 64-bit number."""
    return ConfigDefinition(name, ConfigType.LONG, default, doc, **options)


def double(name: str, default: float, doc: str, **options: Unpack[DefinitionOptions]) -> ConfigDefinition:
    """A row of a floating-point number."""
    return ConfigDefinition(name, ConfigType.DOUBLE, default, doc, **options)


def string(name: str, default: str | None, doc: str, **options: Unpack[DefinitionOptions]) -> ConfigDefinition:
    """A row of text."""
    return ConfigDefinition(name, ConfigType.STRING, default, doc, **options)


def items(name: str, default: tuple[str, ...] | None, doc: str, **options: Unpack[DefinitionOptions]) -> ConfigDefinition:
    """A row of a list, written with commas."""
    return ConfigDefinition(name, ConfigType.LIST, default, doc, **options)


def from_broker(*names: str | Synonym) -> tuple[Synonym, ...]:
    """Stand-ins in order of precedence."""
    return tuple(Synonym(name) if isinstance(name, str) else name for name in names)


def table(rows: Iterable[ConfigDefinition]) -> dict[str, ConfigDefinition]:
    """Rows by name."""
    return {row.name: row for row in rows}
