"""What a configuration is: its name, its type, which values it takes, what it means. Values are text outside, typed inside.

The numbers of :class:`ConfigType` and :class:`ConfigSource` are those of the DescribeConfigs answer (KIP-226, KIP-569). The tables are
written with a short form for each type, so that a table reads as a table.
"""

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import NamedTuple, TypedDict, Unpack

from moldau.model.errors import ErrorCode, PeerError

ConfigValue = bool | int | float | str | tuple[str, ...] | None
"""A parsed value. None: not set, and without a default."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """How the text of a value is read."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from; the lower number wins among those that apply to a resource."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class UpdateMode(Enum):
    """Whether a broker's configuration can be changed while it runs, and for whom."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class InvalidConfigError(PeerError):
    """A configuration that is not known, or a value that it does not take. `name` is the configuration's, or empty."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)
        self.name = name


class Validator:
    """Which parsed values are allowed. ``str()`` of it is that set for a person, as in ``[0,...]``."""

    __slots__ = ()

    def allows(self, value: ConfigValue) -> bool:
        """Whether `value`, which has the right type, is one of them."""
        raise NotImplementedError


class Synonym(NamedTuple):
    """A broker's configuration that stands in where this one is not set; its number times `factor` is the value."""

    name: str
    factor: int = 1

    def convert(self, value: ConfigValue) -> ConfigValue:
        """The stand-in's value in this configuration's unit; "unlimited" stays -1."""
        if self.factor == 1 or not isinstance(value, int):
            return value
        return value * self.factor if value >= 0 else -1


class ConfigDefinition:
    """One line of the table of definitions. Never changed once made; written by hand instead of as a dataclass since 200 are made at start.

    * `default`: None, or a value that passes `allowed`.
    * `synonyms`: stand-ins in the order of precedence; the configuration itself is not among them.
    * `in_effect`: False for a name that tools read and files carry, while nothing here depends on its value.
    * `own`: Kafka does not have this name.
    * `deviation`: why default or range differ from Kafka 4.3's; for a name of our own, why it exists. Empty: as in Kafka.
    """

    __slots__ = ("allowed", "default", "deviation", "doc", "in_effect", "mode", "name", "own", "sensitive", "synonyms", "type")

    def __init__(
        self,
        name: str,
        type: ConfigType,  # noqa: A002 - the word of the field
        default: ConfigValue,
        doc: str,
        allowed: Validator | None = None,
        mode: UpdateMode = UpdateMode.READ_ONLY,
        synonyms: tuple[Synonym, ...] = (),
        sensitive: bool = False,
        in_effect: bool = True,
        own: bool = False,
        deviation: str = "",
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.doc = doc
        self.allowed = allowed
        self.mode = mode
        self.synonyms = synonyms
        self.sensitive = sensitive
        self.in_effect = in_effect
        self.own = own
        self.deviation = deviation

    def __repr__(self) -> str:
        return f"ConfigDefinition({self.name})"


_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}


def parse_value(definition: ConfigDefinition, text: str) -> ConfigValue:
    """The value of `text`; an item that a list has twice counts once.

    InvalidConfigError names the configuration, the text and what is allowed.
    """
    stripped = text.strip()
    value: ConfigValue
    match definition.type:
        case ConfigType.BOOLEAN:
            value = {"true": True, "false": False}.get(stripped.lower())
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            value = _whole_number(stripped, _BITS[definition.type])
        case ConfigType.DOUBLE:
            value = _real_number(stripped)
        case ConfigType.LIST:
            items = tuple(dict.fromkeys(item.strip() for item in stripped.split(",")))
            value = items if any(items) else ()
        case ConfigType.PASSWORD:
            value = text
        case ConfigType.STRING | ConfigType.CLASS:
            value = stripped
    if value is None or (definition.allowed is not None and not definition.allowed.allows(value)):
        shown = "the given value" if definition.sensitive else f"'{text}'"
        raise InvalidConfigError(f"{definition.name}: {shown} is not allowed, must be {describe_allowed(definition)}", definition.name)
    return value


def format_value(definition: ConfigDefinition, value: ConfigValue) -> str | None:
    """Text that :func:`parse_value` reads as `value`; numbers as Java writes them."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value).replace("e+", "E").replace("e", "E")
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def describe_allowed(definition: ConfigDefinition) -> str:
    """The allowed values for a person: type and range."""
    kind = definition.type.name.lower()
    return kind if definition.allowed is None else f"{kind} {definition.allowed}"


def _whole_number(text: str, bits: int) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
        return None
    value = int(text)
    return value if -(1 << bits) <= value < 1 << bits else None


def _real_number(text: str) -> float | None:
    if "_" in text or not text.isascii():
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return None if value != value or value in (float("inf"), float("-inf")) else value


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
