"""What the registry asks of a schema language, and how large a schema may be.

The registry stores texts. Everything that needs to understand a text goes through the two protocols here, so that the store, the
REST interface and the election know nothing of Avro, JSON Schema or Protobuf.

References arrive resolved and flat: the caller of `SchemaLanguage.parse` has looked each reference up, its own references before it.
A name that occurs twice with the same text is one reference.

A schema above a bound is refused with error code 42201 before it costs time or memory. Each bound is far above what people write by hand or
generate, and keeps the work for one schema within a second on a slow machine. What no count foresees ends at the limits of the worker
process that does the work.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


def quoted(value: object) -> str:
    """A string, number, boolean or null as JSON. Half a surrogate pair, which UTF-8 cannot hold, stays an escape."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"


class InvalidSchemaError(ValueError):
    """A text is no schema of its language; the message names the place in the text.

    The registry answers HTTP 422 with error code 42201.
    """


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """A schema that another one uses: the name it is used under, the subject and version it is registered as, its stored text.

    The name is a full type name in Avro, a URI or file name in JSON Schema, and an import path in Protobuf.
    """

    name: str
    subject: str
    version: int
    text: str


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why data written with one schema cannot be read with another.

    `type` is the name that Confluent's registry gives the difference (`READER_FIELD_MISSING_DEFAULT_VALUE`), `path` the place in
    the schema (`/fields/3/type`). `description` is a sentence with `{reader}` and `{writer}` left open: which of the two schemas is
    the new one depends on the level that is checked. `additional` is what Avro adds: the symbols, names or types at fault.
    """

    type: str
    path: str
    description: str
    additional: str | None = None

    def message(self, reader: str, writer: str) -> str:
        """The difference in the words of Confluent's registry; `reader` and `writer` are `new` and `old`, or the other way round."""
        sentence = self.description.replace("{reader}", reader).replace("{writer}", writer)
        if self.additional is None:
            return f'{{errorType:"{self.type}", description:"{sentence}"}}'
        return f"{{errorType:'{self.type}', description:'{sentence}', additionalInfo:'{self.additional}'}}"


class ParsedSchema(Protocol):
    """A schema that was read and found valid."""

    @property
    def language(self) -> str:
        """`AVRO`, `JSON` or `PROTOBUF`."""

    @property
    def canonical(self) -> str:
        """The text that is stored and returned; two texts with one canonical form are one schema."""

    @property
    def name(self) -> str | None:
        """The full name of what the schema describes (an Avro record, the first Protobuf message, a JSON title), if it has one."""

    def normalized(self) -> "ParsedSchema":
        """The same schema in the form that `normalize=true` asks for: differences that mean nothing are ironed out."""

    def formatted(self, form: str) -> str:
        """The text in another form: `serialized` (Protobuf: a base64 descriptor), `resolved` (references put in).

        A form that the language does not have, and the empty form, give the canonical text.
        """

    def check(self, older: "ParsedSchema") -> list[Incompatibility]:
        """Why this schema cannot read what was written with `older`; nothing if it can. Both are of one language."""


class SchemaLanguage(Protocol):
    """A way to write schemas."""

    @property
    def name(self) -> str:
        """`AVRO`, `JSON` or `PROTOBUF`."""

    def parse(self, text: str, references: Sequence[ResolvedReference] = (), *, stored: bool = False) -> ParsedSchema:
        """Read a schema; InvalidSchemaError if the text is none.

        `stored` is for texts that a registry holds already: they are taken as they are, even if a default value or a name in them
        would be refused today.
        """


class ParseSchema(Protocol):
    """Reads a schema of a language that is named: in this process, or from what other processes found out."""

    def __call__(
        self, name: str, text: str, references: tuple[ResolvedReference, ...] = (), *, stored: bool = False, compared: bool = False
    ) -> ParsedSchema:
        """InvalidSchemaError, UnknownLanguageError. `compared`: the canonical text will perhaps not be asked for."""


TEXT_CHARACTERS_MAX = 1 << 20
"""Of one schema; a record of `_schemas` holds no more by default (`max.message.bytes`)."""
REFERENCES_MAX = 500
"""Schemas that one schema refers to, directly or not."""
REFERENCE_DEPTH_MAX = 100
"""References of references."""
ALL_CHARACTERS_MAX = 4 << 20
"""Of a schema and everything it refers to."""
JSON_NODES_MAX = 100_000
"""Objects, lists and values of a JSON text: an Avro schema or a JSON Schema."""
PROTOBUF_ELEMENTS_MAX = 20_000
"""Messages, fields, oneofs, enums, constants, ranges, services and methods of a Protobuf file and its imports."""
COMPARED_PAIRS_MAX = 100_000
"""Pairs of parts that are looked at in one comparison of two schemas."""
DIFFERENCES_MAX = 1_000
"""Differences that are kept below one pair of parts, incompatible ones first; more do not help a reader."""


class SchemaTooLargeError(InvalidSchemaError):
    """Too many characters; the registry answers 42209."""


class TooManyPairsError(InvalidSchemaError):
    """A comparison is given up."""

    def __init__(self) -> None:
        super().__init__(f"comparing the two schemas takes more than {COMPARED_PAIRS_MAX:,} pairs of their parts")


def check_size(text: str, references: Sequence[ResolvedReference] = ()) -> None:
    """SchemaTooLargeError, InvalidSchemaError for too many references."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise SchemaTooLargeError(f"The schema has {len(text):,} characters, at most {TEXT_CHARACTERS_MAX:,} are allowed")
    if len(references) > REFERENCES_MAX:
        raise InvalidSchemaError(f"the schema refers to {len(references):,} others, at most {REFERENCES_MAX} are allowed")
    if len(text) + sum(len(each.text) for each in references) > ALL_CHARACTERS_MAX:
        raise SchemaTooLargeError(f"The schema and what it refers to have more than {ALL_CHARACTERS_MAX:,} characters")


def check_nodes(document: Any) -> None:
    """InvalidSchemaError for JSON of too many nodes."""
    waiting, count = [document], 0
    while waiting:
        node = waiting.pop()
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        count += len(children)
        if count > JSON_NODES_MAX:
            raise InvalidSchemaError(f"the schema has more than {JSON_NODES_MAX:,} JSON values")
        waiting += children
