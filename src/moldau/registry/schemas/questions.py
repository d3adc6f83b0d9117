"""What a worker process is asked about schemas, and what it answers, as bytes; and the worker's side of it.

A question names everything that the answer depends on, so an answer stays right for ever and may be kept under the question's digest.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.registry.schemas.language import Incompatibility, InvalidSchemaError, ParsedSchema, ResolvedReference
from moldau.registry.schemas.languages import parsed

if TYPE_CHECKING:
    from moldau.ports.workers import WorkerTools

WORK = "moldau.registry.schemas.questions:work"
WARM_UP = b""
"""The task that makes a worker load the code for Avro, and answers nothing."""
CANONICAL = ""


class SchemaText(NamedTuple):
    """A schema as text, with what it refers to."""

    language: str
    text: str
    references: tuple[ResolvedReference, ...] = ()
    stored: bool = False
    normalized: bool = False

    def digest(self) -> bytes:
        """16 bytes that are another for each schema, in whatever text it differs."""
        references = (part for each in self.references for part in (each.name, each.subject, each.version, each.text))
        return _digest(self.language, self.text, self.stored, self.normalized, len(self.references), *references)

    def plain(self) -> tuple[Any, ...]:
        """As JSON has it."""
        references = [(each.name, each.subject, each.version, each.text) for each in self.references]
        return self.language, self.text, references, self.stored, self.normalized


class SchemaQuestion(NamedTuple):
    """The text of `schema` in a form (the canonical one by default); with `older` why it cannot read what was written with that.

    With `digested` the answer is no more than the digest of the text: enough to know that there is one, or whether it is another's.
    """

    schema: SchemaText
    form: str = CANONICAL
    older: SchemaText | None = None
    digested: bool = False

    def encode(self) -> bytes:
        """The task of a worker."""
        older = None if self.older is None else self.older.plain()
        return json.dumps((self.schema.plain(), self.form, older, self.digested)).encode()

    def digest(self) -> bytes:
        """16 bytes that are another for each question."""
        return question_digest(self, self.schema.digest(), self.older.digest() if self.older else b"")


Answer = str | list[Incompatibility] | InvalidSchemaError
"""A text, differences, or why there is neither."""


def answer(question: SchemaQuestion) -> Answer:
    """Understand, in this process."""
    try:
        schema = _read(question.schema)
        if question.older is not None:
            return schema.check(_read(question.older))
        text = schema.formatted(question.form)
        return text_digest(text) if question.digested else text
    except InvalidSchemaError as error:
        return error
    except RecursionError:
        return InvalidSchemaError("it is nested too deeply")


def question_digest(question: SchemaQuestion, schema: bytes, older: bytes) -> bytes:
    """The digest of a question about schemas whose digests are known: they may be long, and many questions be about one."""
    return _digest(schema.hex(), question.form, question.digested, older.hex())


def _digest(*parts: object) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for each in parts:
        data = str(each).encode("utf-8", "surrogatepass")
        found.update(b"%d:" % len(data))
        found.update(data)
    return found.digest()


def text_digest(text: str) -> str:
    """Another one for each text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def work(task: bytes, _tools: "WorkerTools") -> Iterator[bytes]:
    """A worker's work: one answer to one question."""
    if task == WARM_UP:
        parsed("AVRO", '"string"')
        return
    schema, form, older, digested = json.loads(task)
    yield encode_answer(answer(SchemaQuestion(_source(schema), form, None if older is None else _source(older), digested)))


def encode_answer(found: Answer) -> bytes:
    """An answer as bytes."""
    if isinstance(found, InvalidSchemaError):
        return json.dumps({"fault": str(found)}).encode()
    if isinstance(found, str):
        return json.dumps({"text": found}).encode()
    return json.dumps({"differences": [[each.type, each.path, each.description, each.additional] for each in found]}).encode()


def decode_answer(data: bytes) -> Answer:
    """An answer out of bytes."""
    fields = json.loads(data)
    if "fault" in fields:
        return InvalidSchemaError(fields["fault"])
    if "text" in fields:
        return str(fields["text"])
    return [Incompatibility(*each) for each in fields["differences"]]


def _source(fields: Any) -> SchemaText:
    language, text, references, stored, normalized = fields
    return SchemaText(language, text, tuple(ResolvedReference(*each) for each in references), stored, normalized)


def _read(source: SchemaText) -> ParsedSchema:
    found = parsed(source.language, source.text, source.references, stored=source.stored)
    return found.normalized() if source.normalized else found
