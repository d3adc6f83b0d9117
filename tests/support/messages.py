"""Every (message class, version), and hypothesis strategies for their values, built from the declarations of the fields."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from moldau.model.errors import ErrorCode, ProtocolError
from moldau.protocol import messages
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode
from moldau.protocol.codec.fields import Blob, Field, Fixed, ListOf, Nested, Text, WireType, fields_of, int8, int32, int64
from support.sizes import sized

few = settings(
    max_examples=sized(2, 100),
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=tuple(HealthCheck),
)
"""For a test that goes through all of some five hundred cases: a few examples of each, new ones in every run."""

TIME_MS_MAX = 1 << 42
"""Beyond the year 2100, within what Python's dates can hold."""


class Case(NamedTuple):
    """One class at one version."""

    cls: type[Any]
    version: int

    def __str__(self) -> str:
        return f"{self.cls.__name__} v{self.version}"


def cases(api_key: ApiKey) -> Iterator[Case]:
    """Request and response of an API at all its versions."""
    pair = messages.load(api_key)
    for version in range(pair.versions.min, pair.versions.max + 1):
        yield Case(pair.request, version)
        yield Case(pair.response, version)


def all_cases() -> list[Case]:
    """Everything there is."""
    return [case for api_key in ApiKey for case in cases(api_key)]


def decode_or_refuse(case: Case, data: bytes) -> None:
    """Decode what may be damaged: a message or a ProtocolError."""
    with suppress(ProtocolError):
        decode(*case, memoryview(data))


OWN_TAGS = 10_000
"""Tagged fields that Kafka's messages do not have are numbered from here on."""


def carried(cls: type[Any], version: int) -> list[Field]:
    """The fields of `cls` that travel at this version, but for our own, which no other codec knows."""
    return [field for field in fields_of(cls) if field.versions.includes(version) and (field.tag or 0) < OWN_TAGS]


def values(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Messages that this version can carry: other fields stay at their defaults."""
    if (cls, version) not in _values:
        _values[cls, version] = st.builds(cls, **{field.name: _field(field, version) for field in carried(cls, version)})
    return _values[cls, version]


_values: dict[tuple[type[Any], int], st.SearchStrategy[Any]] = {}


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    named = _named(field.name, field.type)
    strategy = _wire(field.type, version) if named is None else named
    if field.tag is not None and isinstance(field.type, Nested):
        defaults = field.type.cls()
        return st.none() | strategy.map(lambda value: None if value == defaults else value)  # the one way to say "defaults"
    if field.tag is not None and not isinstance(field.type, ListOf):
        strategy |= st.just(field.default)
    return st.none() | strategy if field.nullable.includes(version) else strategy


def _named(name: str, wire: WireType) -> st.SearchStrategy[Any] | None:
    """Where other codecs know more than the wire does: error codes and moments in time."""
    if name.endswith("error_code"):
        return st.sampled_from(ErrorCode).map(int)
    if isinstance(wire, Fixed) and wire.code == "q" and ("time" in name or "lifetime" in name):
        return st.integers(-1, TIME_MS_MAX)
    return None


_INTEGER_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
_TEXT = st.text(max_size=6) | st.text("abcdefgh", min_size=124, max_size=130)
_BYTES = st.binary(max_size=6) | st.binary(min_size=126, max_size=128)


def _wire(wire: WireType, version: int) -> st.SearchStrategy[Any]:
    match wire:
        case Fixed():
            return _fixed(wire)
        case Text():
            return _TEXT
        case Blob():
            return _BYTES
        case ListOf():
            long = st.lists(st.integers(0, 99), min_size=126, max_size=128) if wire.element in _NUMBERS else st.nothing()
            return st.lists(_wire(wire.element, version), max_size=2) | long
        case Nested():
            return values(wire.cls, version)
        case _:
            raise AssertionError(wire)


def _fixed(wire: Fixed) -> st.SearchStrategy[Any]:
    match wire.code:
        case "?":
            return st.booleans()
        case "d":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "16s":
            return st.binary(min_size=16, max_size=16) | st.just(bytes(16))
        case "H" | "I":
            return st.integers(0, (1 << (8 * wire.size)) - 1)
        case code:
            half = 1 << (_INTEGER_BITS[code] - 1)
            return st.integers(-half, half - 1)


_NUMBERS: list[WireType] = [int8, int32, int64]
