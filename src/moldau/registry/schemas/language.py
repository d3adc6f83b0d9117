"""What the registry asks of a schema language.

The registry stores texts. Everything that needs to understand a text goes through the two protocols here, so that the store, the
REST interface and the election know nothing of Avro, JSON Schema or Protobuf.

References arrive resolved and flat: whoever calls `SchemaLanguage.parse` has looked each reference up, its own references before it.
A name that occurs twice with the same text is one reference.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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
