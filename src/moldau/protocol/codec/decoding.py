"""Makes the decoder of one (message class, version): a Python function generated from the field specs.

How the generated code works:

* `data` is what was received, `p` the position, `end` the length. Messages that carry records are read from the `memoryview` in place,
  all others from one `bytes` copy, which slices and decodes text twice as fast.
* Neighbours of fixed size are read by one `struct` unpack, straight into the attributes of the new object; the length prefix of what
  follows is part of the same unpack.
* The end of the data is checked once, at the end: a read beyond it fails by itself, a slice beyond it is merely short, and no position
  ever moves back. Only counts of arrays are checked before use, against the bytes left and the least size of an element, and together,
  with those of tagged fields, against a bound that the caller sets.
* The same function `in_steps` is a generator that yields after each element which is a struct, for requests that take long.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import error as struct_error
from typing import Any

from moldau.model.errors import ProtocolError
from moldau.protocol.codec import primitives
from moldau.protocol.codec.fields import Blob, Field, Fixed, ListOf, Nested, Text, WireType, fields_of
from moldau.protocol.codec.primitives import NO_BOUND, too_many_elements
from moldau.protocol.codec.source import Source
from moldau.protocol.varint import read_uvarint, skip_fields

MALFORMED = (struct_error, IndexError, UnicodeDecodeError, ProtocolError)


def malformed(title: str, error: Exception, position: int, end: int) -> ProtocolError:
    """The one error that a decoder raises: which message, where, why."""
    if isinstance(error, ProtocolError):
        reason = error.message
    elif isinstance(error, UnicodeDecodeError):
        reason = "text is not UTF-8"
    else:
        reason = "it is cut off"
    return ProtocolError(f"{title}, near byte {position} of {end}: {reason}")


def decoder_source(cls: type[Any], version: int, *, flexible: bool, in_steps: bool = False) -> Source:
    """Source of `decode(view, p, elements_max) -> (message, position after it)`, or of a generator function that returns that."""
    source = Source(
        new=object.__new__, uvarint=read_uvarint, skip_fields=skip_fields, bad_length=primitives.bad_length,
        bad_count=primitives.bad_count, bad_tag=primitives.bad_tag, too_many_elements=too_many_elements,
        MALFORMED=MALFORMED, malformed=malformed,
    )  # fmt: skip
    title = f"{cls.__name__} v{version}"
    in_place = _in_place(cls)
    with source.block(f"def decode(view, p, elements_max={NO_BOUND}):"):
        source.line("data = view" if in_place else "data = bytes(view)")
        source.line("end = len(data)")
        source.line("left = elements_max")
        if in_steps:
            source.line("if False: yield")
        with source.block("try:"):
            body = _Body(source, version, flexible=flexible, in_place=in_place, in_steps=in_steps)
            message = source.fresh("o")
            body.read_struct(cls, message)
            body.flush()
            with source.block("if p > end:"):
                source.line("raise IndexError")
        with source.block("except MALFORMED as error:"):
            source.line(f"raise malformed({title!r}, error, p, end) from error")
        source.line(f"return {message}, p")
    return source


def _in_place(cls: type[Any]) -> bool:
    return any(_holds_records(field.type) for field in fields_of(cls))


def _holds_records(wire: WireType) -> bool:
    match wire:
        case Blob():
            return wire.in_place
        case ListOf():
            return _holds_records(wire.element)
        case Nested():
            return _in_place(wire.cls)
        case _:
            return False


class _Body:
    """Emits the statements that read values. `n` holds the latest length, which nothing needs for long."""

    def __init__(self, source: Source, version: int, *, flexible: bool, in_place: bool, in_steps: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.in_place = in_place
        self.in_steps = in_steps
        self._run: list[tuple[str, int, str]] = []

    def flush(self) -> None:
        """Read the fixed-size values collected so far."""
        if not self._run:
            return
        layout = self.source.layout("unpack_from", "".join(code for code, _, _ in self._run))
        targets = ", ".join(target for _, _, target in self._run)
        self.source.line(f"{targets}{',' if len(self._run) == 1 else ''} = {layout}(data, p)")
        self.source.line(f"p += {sum(size for _, size, _ in self._run)}")
        self._run.clear()

    def read_struct(self, cls: type[Any], target: str) -> None:
        """A new `cls` into the local name `target`."""
        source, version = self.source, self.version
        source.line(f"{target} = new({source.constant(cls.__name__, cls)})")
        tagged = []
        for field in fields_of(cls):
            name = f"{target}.{field.name}"
            if not field.versions.includes(version):
                self._default(field, name)
            elif field.tag is not None:
                tagged.append(field)
                self._default(field, name)
            else:
                self._read(field.type, name, nullable=field.nullable.includes(version))
        if self.flexible:
            self._read_tags(tagged, target)

    def _default(self, field: Field, target: str) -> None:
        if field.default == ():
            value = "[]"
        elif isinstance(field.default, Nested):
            value = f"{self.source.constant(field.default.cls.__name__, field.default.cls)}()"
        else:
            value = repr(field.default)
        self.source.line(f"{target} = {value}")

    def _read_tags(self, fields: list[Field], owner: str) -> None:
        source = self.source
        self._run.append(("B", 1, "n"))
        self.flush()
        if not fields:
            with source.block("if n:"):
                source.line("n, p = uvarint(data, p - 1)")
                self._spend()
                source.line("p = skip_fields(data, p, n)")
            return
        tag, stop = source.fresh("tag"), source.fresh("stop")
        with source.block("if n:"):
            source.line("n, p = uvarint(data, p - 1)")
            self._spend()
            with source.block("for _ in range(n):"):
                source.line(f"{tag}, p = uvarint(data, p)")
                source.line(f"{stop}, p = uvarint(data, p)")
                source.line(f"{stop} += p")
                for position, field in enumerate(fields):
                    with source.block(f"{'elif' if position else 'if'} {tag} == {field.tag}:"):
                        self._read(field.type, f"{owner}.{field.name}", nullable=field.nullable.includes(self.version))
                        self.flush()
                with source.block("else:"):
                    source.line(f"p = {stop}")
                with source.block(f"if p != {stop} or p > end:"):
                    source.line(f"bad_tag({tag}, p, {stop})")

    def _read(self, wire: WireType, target: str, *, nullable: bool) -> None:
        match wire:
            case Fixed():
                self._run.append((wire.code, wire.size, target))
            case Text() | Blob():
                self._read_length("h" if isinstance(wire, Text) else "i")
                with self._unless_null(target, nullable=nullable):
                    self.source.line("q = p + n")
                    self.source.line(f"{target} = {self._slice(wire)}")
                    self.source.line("p = q")
            case ListOf():
                self._read_length("i")
                with self._unless_null(target, nullable=nullable):
                    self._read_list(wire.element, target)
            case Nested():
                self._read_nested(wire.cls, target, nullable=nullable)
            case _:
                raise AssertionError(wire)

    def _read_length(self, code: str) -> None:
        """The length of what follows into `n`, -1 for null. Of text (`code` "h") it has an upper limit."""
        source = self.source
        self._run.append(("B", 1, "n") if self.flexible else (code, 2 if code == "h" else 4, "n"))
        self.flush()
        if self.flexible:
            with source.block("if n > 127:"):
                source.line("n, p = uvarint(data, p - 1)")
                if code == "h":
                    with source.block(f"if n > {primitives.STRING_BYTES_MAX + 1}:"):
                        source.line('bad_length("string", n - 1)')
            source.line("n -= 1")

    @contextmanager
    def _unless_null(self, target: str, *, nullable: bool) -> Iterator[None]:
        name = target.rpartition(".")[2]
        if not nullable:
            with self.source.block("if n < 0:"):
                self.source.line(f"bad_length({name!r}, n)")
            yield
            return
        with self.source.block("if n >= 0:"):
            yield
        with self.source.block("elif n == -1:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.source.line(f"bad_length({name!r}, n)")

    def _slice(self, wire: Text | Blob) -> str:
        if isinstance(wire, Text):
            return "str(data[p:q], 'utf-8')" if self.in_place else "data[p:q].decode()"
        return "bytes(data[p:q])" if self.in_place and not wire.in_place else "data[p:q]"

    def _read_list(self, element: WireType, target: str) -> None:
        source, name = self.source, target.rpartition(".")[2]
        least = least_size(element, self.version, flexible=self.flexible)
        with source.block(f"if n * {least} > end - p:" if least > 1 else "if n > end - p:"):
            source.line(f"bad_count({name!r}, n, end - p)")
        self._spend()
        if isinstance(element, Fixed):
            source.line(f"{target} = list({source.shared(f'unpackers_{element.code}', primitives.Unpackers, element.code)}[n](data, p))")
            source.line(f"p += n * {element.size}")
            return
        elements, item = source.fresh("list"), source.fresh("o")
        source.line(f"{target} = {elements} = []")
        with source.block("for _ in range(n):"):
            self._read(element, item, nullable=False)
            self.flush()
            source.line(f"{elements}.append({item})")
            if self.in_steps and isinstance(element, Nested):
                source.line("yield")

    def _spend(self) -> None:
        """Count `n` elements against the bound."""
        self.source.line("left -= n")
        with self.source.block("if left < 0:"):
            self.source.line("too_many_elements(elements_max)")

    def _read_nested(self, cls: type[Any], target: str, *, nullable: bool) -> None:
        item = target if target.isidentifier() else self.source.fresh("o")
        if not nullable:
            self.read_struct(cls, item)
        else:
            self._run.append(("b", 1, "n"))
            self.flush()
            self.source.line(f"{item} = None")
            with self.source.block("if n >= 0:"):
                self.read_struct(cls, item)
                self.flush()
        if item != target:
            self.source.line(f"{target} = {item}")


def least_size(wire: WireType, version: int, *, flexible: bool) -> int:
    """The fewest bytes that a value of this type takes."""
    match wire:
        case Fixed():
            return wire.size
        case Text():
            return 1 if flexible else 2
        case Nested():
            fields = (field for field in fields_of(wire.cls) if field.versions.includes(version) and field.tag is None)
            return sum(_least_size_of_field(field, version, flexible=flexible) for field in fields) + flexible
        case _:
            return 1 if flexible else 4


def _least_size_of_field(field: Field, version: int, *, flexible: bool) -> int:
    if isinstance(field.type, Nested) and field.nullable.includes(version):
        return 1
    return least_size(field.type, version, flexible=flexible)
