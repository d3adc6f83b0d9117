"""How a message is declared: one class for all its versions, one line per field.

    @message
    class MetadataRequest:
        API: ClassVar = ApiKey.METADATA

        topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
        allow_auto_topic_creation: bool = boolean("4+", True)

The annotation is for people and mypy, the right-hand side is for the codec: the type on the wire, the versions that carry the field
("0+", "3", "0-7"), its default, and

* `nullable`: versions in which it may be null;
* `tag`: it travels as this tagged field (KIP-482), and only when it differs from its default;
* `ignorable`: a value that the version cannot carry is left out; for other fields it is an error, as in Kafka.

A field's default is zero, empty or false; null if it may be null in every version that has it; null, standing for "all defaults", for a
tagged struct. Versions that do not carry a field decode it to its default.
"""

from typing import Any, NamedTuple, TypeVar, dataclass_transform

from moldau.protocol.versions import VersionRange

T = TypeVar("T")

NO_VERSIONS = VersionRange(0, -1)
_LAST = 32767
_UNSET: Any = object()
_FIELDS = "__wire_fields__"


class Field(NamedTuple):
    """What the codec knows of one field."""

    name: str
    type: "WireType"
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    ignorable: bool
    default: Any
    """Immutable default; an empty tuple means a new list, and `type` itself a new struct."""


class WireType:
    """A type of the protocol. Calling it declares a field of that type."""

    zero: Any = None

    def __call__(self, versions: str, default: Any = _UNSET, *, nullable: str = "", tag: int | None = None, ignorable: bool = False) -> Any:
        """A field carried by `versions`."""
        carried, null = parse_versions(versions), parse_versions(nullable)
        if default is _UNSET:
            always_null = null.min <= carried.min and null.max >= carried.max
            default = None if always_null or (tag is not None and isinstance(self, Nested)) else self.zero
        return Field("", self, carried, null, tag, ignorable, default)


class Fixed(WireType):
    """A value of fixed size; `code` is its letter in the `struct` module."""

    def __init__(self, code: str, size: int, zero: Any = 0) -> None:
        self.code = code
        self.size = size
        self.zero = zero


class Text(WireType):
    """UTF-8 text after its length in bytes."""

    zero = ""


class Blob(WireType):
    """Bytes after their length. Decoded to `bytes`, or where `in_place` to a `memoryview` of what was received."""

    zero = b""

    def __init__(self, *, in_place: bool) -> None:
        self.in_place = in_place


class ListOf(WireType):
    """A count and that many elements."""

    zero = ()

    def __init__(self, element: WireType) -> None:
        self.element = element


class Nested(WireType):
    """The fields of another message class, in their order."""

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        self.zero = self


boolean = Fixed("?", 1, zero=False)
int8 = Fixed("b", 1)
int16 = Fixed("h", 2)
uint16 = Fixed("H", 2)
int32 = Fixed("i", 4)
uint32 = Fixed("I", 4)
int64 = Fixed("q", 8)
float64 = Fixed("d", 8, zero=0.0)
uuid = Fixed("16s", 16, zero=bytes(16))
"""Sixteen bytes as they travel; all zero means none."""
string = Text()
binary = Blob(in_place=False)
record_bytes = Blob(in_place=True)
"""Record batches, after a length of 32 bits or a compact one."""


def array(
    element: WireType | type[Any],
    versions: str,
    default: Any = _UNSET,
    *,
    nullable: str = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A field that is a list of `element`, a wire type or a message class."""
    inner = element if isinstance(element, WireType) else Nested(element)
    return ListOf(inner)(versions, default, nullable=nullable, tag=tag, ignorable=ignorable)


def struct(
    cls: type[Any], versions: str, default: Any = _UNSET, *, nullable: str = "", tag: int | None = None, ignorable: bool = False
) -> Any:
    """A field that holds one `cls`."""
    return Nested(cls)(versions, default, nullable=nullable, tag=tag, ignorable=ignorable)


@dataclass_transform()
def message(cls: type[T]) -> type[T]:
    """Make `cls` a mutable class with slots and a constructor, which takes its fields by place or by name; equal by class and fields.

    As a dataclass, but that compiles a function for each method, of each class: it took four times as long, and there are hundreds. The
    constructor is compiled for the first instance; most classes get none, since decoders do not call it.
    """
    fields = tuple(field._replace(name=name) for name, field in vars(cls).items() if isinstance(field, Field))
    names = tuple(field.name for field in fields)
    rest = {name: value for name, value in vars(cls).items() if name not in (*names, "__dict__", "__weakref__")}
    own = {"__slots__": names, "__match_args__": names, "__init__": _compile_constructor, "__repr__": _text, "__eq__": _is_equal}
    made: Any = type(cls.__name__, cls.__bases__, {**rest, **own, "__hash__": None, _FIELDS: fields})
    made.__qualname__ = cls.__qualname__
    result: type[T] = made
    return result


def _compile_constructor(self: Any, *values: Any, **named: Any) -> None:
    """``__init__`` of a message class until its first instance."""
    cls = type(self)
    cls.__init__ = _constructor(fields_of(cls))
    cls.__init__(self, *values, **named)


def _constructor(fields: tuple[Field, ...]) -> Any:
    """``__init__`` of a message class."""
    known: dict[str, Any] = {"unset": _UNSET}
    parameters, lines = ["self"], []
    for field in fields:
        name, made = field.name, None
        default = field.default
        if default == ():
            made = list
        elif isinstance(default, Nested):
            made = default.cls
        known[f"{name}_default"], known[f"{name}_made"] = default, made
        parameters.append(f"{name}={'unset' if made else f'{name}_default'}")
        lines.append(f" self.{name} = {f'{name}_made() if {name} is unset else {name}' if made else name}")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), known)
    return known["__init__"]


def _text(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__match_args__)})"


def _is_equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__match_args__)


def fields_of(cls: type[Any]) -> tuple[Field, ...]:
    """The fields of a message class in the order in which they travel."""
    fields: tuple[Field, ...] = getattr(cls, _FIELDS)
    return fields


def parse_versions(text: str) -> VersionRange:
    """Range from "3+", "3-7", "3", or "" for none."""
    if not text:
        return NO_VERSIONS
    first, dash, last = text.partition("-")
    if first.endswith("+"):
        return VersionRange(int(first[:-1]), _LAST)
    return VersionRange(int(first), int(last) if dash else int(first))
