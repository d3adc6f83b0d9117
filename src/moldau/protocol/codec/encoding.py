"""Makes the encoder of one (message class, version): a Python function generated from the field specs.

The generated function hands byte strings to `w`, usually the `append` of a list that is joined once. Neighbours of fixed size, the length
prefix that follows them and, where it is short, the array of numbers after it are packed by one `struct` call. Fields that the version
does not carry cost nothing if ignorable and one comparison if not.

The same function `in_steps` is a generator that yields after each element of an array which is a struct, for responses that take long. An
array may be an :class:`moldau.protocol.codec.encoded.EncodedArray`: its elements are there as bytes already.
"""

from struct import error as struct_error
from typing import Any

from moldau.protocol.codec import primitives
from moldau.protocol.codec.encoded import EncodedArray
from moldau.protocol.codec.fields import Blob, Field, Fixed, ListOf, Nested, Text, WireType, fields_of, uuid
from moldau.protocol.codec.primitives import UnencodableError
from moldau.protocol.codec.source import Source
from moldau.protocol.varint import uvarint

UNENCODABLE = (struct_error, AttributeError, TypeError, UnencodableError)


def unencodable(title: str, error: Exception) -> UnencodableError:
    """The one error that an encoder raises: which message and why."""
    return UnencodableError(f"{title}: {error}")


def encoder_source(cls: type[Any], version: int, *, flexible: bool, in_steps: bool = False) -> Source:
    """Source of `encode(message, w)`, a generator function with `in_steps`."""
    source = Source(
        uvarint=uvarint, long_uvarint=primitives.long_uvarint, tagged=primitives.tagged, uuid16=primitives.uuid16,
        refuse=primitives.refuse, UNENCODABLE=UNENCODABLE, unencodable=unencodable,
    )  # fmt: skip
    with source.block("def encode(message, w):"):
        with source.block("try:"):
            source.line("if False: yield" if in_steps else "pass")
            body = _Body(source, version, flexible=flexible, in_steps=in_steps)
            body.write_struct(cls, "message")
            body.flush()
        with source.block("except UNENCODABLE as error:"):
            source.line(f"raise unencodable({f'{cls.__name__} v{version}'!r}, error) from error")
    return source


class _Body:
    """Emits the statements that write values. `x`, `s` and `n` hold the latest value, its bytes and its length."""

    def __init__(self, source: Source, version: int, *, flexible: bool, in_steps: bool = False) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.in_steps = in_steps
        self._codes: list[str] = []
        self._values: list[str] = []
        self._write = "w"

    def flush(self) -> None:
        """Write the fixed-size values collected so far."""
        packed = self._packed()
        if packed:
            self.source.line(f"{self._write}({packed})")

    def _packed(self, *more: tuple[str, str]) -> str:
        """Expression for the collected values and `more`, which are then no longer pending. Empty if there are none."""
        codes = "".join(self._codes + [code for code, _ in more])
        values = self._values + [value for _, value in more]
        self._codes.clear()
        self._values.clear()
        if not values:
            return repr(bytes(len(codes))) if codes else ""
        return f"{self.source.layout('pack', codes)}({', '.join(values)})"

    def write_struct(self, cls: type[Any], value: str) -> None:
        """All fields of the struct in the local name `value`."""
        tagged = []
        for field in fields_of(cls):
            name = f"{value}.{field.name}"
            if not field.versions.includes(self.version):
                self._refuse(field, name)
            elif field.tag is not None:
                tagged.append(field)
            else:
                self._write_value(field.type, name, nullable=field.nullable.includes(self.version))
        if tagged:
            self._write_tags(sorted(tagged, key=lambda field: field.tag or 0), value)
        elif self.flexible:
            self._codes.append("x")

    def _refuse(self, field: Field, name: str) -> None:
        if not field.ignorable:
            with self.source.block(f"if {self._differs(field, name)}:"):
                self.source.line(f"refuse({field.name!r}, {name})")

    def _differs(self, field: Field, name: str) -> str:
        """Condition: the field is not at its default."""
        if isinstance(field.type, Nested) and field.tag is not None:
            default = self.source.shared(f"default_{field.type.cls.__name__}", field.type.cls)
            return f"{name} is not None and {name} != {default}"
        if field.default is None:
            return f"{name} is not None"
        if field.default == ():
            return f"{name} or {name} is None"
        if isinstance(field.default, Nested):
            return f"{name} != {self.source.shared(f'default_{field.default.cls.__name__}', field.default.cls)}"
        return f"{name} != {field.default!r}"

    def _write_tags(self, fields: list[Field], owner: str) -> None:
        source, outer = self.source, self._write
        self.flush()
        section, count = source.fresh("section"), source.fresh("count")
        source.line(f"{section} = b''")
        source.line(f"{count} = 0")
        for field in fields:
            name = f"{owner}.{field.name}"
            with source.block(f"if {self._differs(field, name)}:"):
                parts = source.fresh("parts")
                source.line(f"{parts} = []")
                self._write = f"{parts}.append"
                self._write_value(field.type, name, nullable=field.nullable.includes(self.version))
                self.flush()
                source.line(f"{section} += tagged({field.tag}, {parts})")
                source.line(f"{count} += 1")
        self._write = outer
        source.line(f"{outer}(uvarint({count}) + {section})")

    def _write_value(self, wire: WireType, value: str, *, nullable: bool) -> None:
        match wire:
            case Fixed():
                self._codes.append(wire.code)
                self._values.append(f"uuid16({value})" if wire is uuid else value)
            case Text():
                self._write_bytes(value, "h", encode=".encode()", nullable=nullable)
            case Blob():
                self._write_bytes(value, "i", encode="", nullable=nullable)
            case ListOf():
                self._write_list(wire.element, value, nullable=nullable)
            case Nested():
                self._write_nested(wire.cls, value, nullable=nullable)
            case _:
                raise AssertionError(wire)

    def _write_bytes(self, value: str, code: str, *, encode: str, nullable: bool) -> None:
        source, more = self.source, 1 if self.flexible else 0
        length = f"len(s) + {more}" if more else "len(s)"
        if nullable:
            source.line(f"x = {value}")
            source.line(f"s = b'' if x is None else x{encode}")
            source.line(f"n = {more - 1} if x is None else {length}")
        else:
            source.line(f"s = {value}{encode}")
            source.line(f"n = {length}")
        self._write_length(code)
        source.line(f"{self._write}(s)")

    def _write_length(self, code: str) -> None:
        """`n` as the prefix of what follows, together with what is pending."""
        if not self.flexible:
            self._codes.append(code)
            self._values.append("n")
            self.flush()
            return
        codes, values = self._codes.copy(), self._values.copy()
        with self.source.block("if n < 128:"):
            self.source.line(f"{self._write}({self._packed(('B', 'n'))})")
        self._codes, self._values = codes, values
        with self.source.block("else:"):
            self.flush()
            self.source.line(f"{self._write}({'long_uvarint' if code == 'h' else 'uvarint'}(n))")

    def _write_list(self, element: WireType, value: str, *, nullable: bool) -> None:
        source = self.source
        elements, more = source.fresh("list"), 1 if self.flexible else 0
        source.line(f"{elements} = {value}")
        if isinstance(element, Fixed) and not nullable:
            self._write_numbers(element, elements)
            return
        if nullable:
            source.line(f"n = {more - 1} if {elements} is None else len({elements}){f' + {more}' if more else ''}")
        else:
            source.line(f"n = len({elements}){f' + {more}' if more else ''}")
        self._write_length("i")
        item = source.fresh("m")
        if isinstance(element, Nested):
            with source.block(f"if type({elements}) is {source.constant('EncodedArray', EncodedArray)}:"):
                source.line(f"for part in {elements}.parts: {self._write}(part)")
                source.line(f"{elements} = ()")
        with source.block(f"for {item} in {elements} or ():" if nullable else f"for {item} in {elements}:"):
            self._write_value(element, item, nullable=False)
            self.flush()
            if self.in_steps and isinstance(element, Nested):
                source.line("yield")

    def _write_numbers(self, element: Fixed, elements: str) -> None:
        codes, values = "".join(self._codes), self._values.copy()
        self._codes.clear()
        self._values.clear()
        packers = self.source.shared(
            f"packers_{codes}_{element.code}".replace("?", "o"), primitives.Packers, codes, len(values), element.code, compact=self.flexible
        )
        values.append(f"len({elements}){' + 1' if self.flexible else ''}")
        values.append(f"*map(uuid16, {elements})" if element is uuid else f"*{elements}")
        self.source.line(f"{self._write}({packers}[len({elements})]({', '.join(values)}))")

    def _write_nested(self, cls: type[Any], value: str, *, nullable: bool) -> None:
        item = self.source.fresh("m")
        if not value.isidentifier():
            self.source.line(f"{item} = {value}")
        else:
            item = value
        if not nullable:
            self.write_struct(cls, item)
            return
        self.flush()
        with self.source.block(f"if {item} is None:"):
            self.source.line(f"{self._write}(b'\\xff')")
        with self.source.block("else:"):
            self._codes.append("b")
            self._values.append("1")
            self.write_struct(cls, item)
            self.flush()
