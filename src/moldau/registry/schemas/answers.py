"""Schemas known by the answers of worker processes: what a worker is asked, what it answers, and the answers that are kept.

A question names everything that the answer depends on, so an answer stays right for ever and may be kept under the question's digest.

Decisions use `AnswerCache` like the languages themselves. A missing answer raises its question, `UnansweredError`; the caller has it
answered in another process, remembers the answer here, and decides again. So deciding never waits for a schema and never
costs more than look-ups, and no schema delays changes that wait for their lock.

A decision needs all of its answers at once. So a request keeps those that it asked for until it ends (`HeldAnswers`), whatever others need
meanwhile: each is asked for once. What is kept beyond that is shared by later requests. Texts of stored schemas are not kept: a comparison
only needs to know that they can be read.
"""

import hashlib
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from moldau.registry.schemas.language import Incompatibility, InvalidSchemaError, ParsedSchema, ResolvedReference, check_size
from moldau.registry.schemas.languages import LANGUAGES, UnknownLanguageError, parsed

if TYPE_CHECKING:
    from moldau.ports.background import WorkerTools


WORK = "moldau.registry.schemas.answers:work"
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


KEPT_BYTES_MAX = 4 << 20
"""Memory of all answers that are kept for later requests; the least used goes first."""
REQUEST_BYTES_MAX = 6 << 20
"""Memory of the answers that one request keeps: three texts of the largest size in ASCII, and half as much of differences."""
HELD_BYTES_MAX = 12 << 20
"""Memory of the answers that all requests under way keep."""
_EACH_BYTES = 256


class UnansweredError(Exception):
    """A question has to be answered before this can be decided."""

    def __init__(self, question: SchemaQuestion) -> None:
        super().__init__("a schema has to be read first")
        self.question = question


class AnswerCache:
    """Answers by question. Any thread may use it."""

    def __init__(
        self,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        self.request_bytes_max = request_bytes_max
        self.held_bytes_max = held_bytes_max
        self.held_bytes = 0
        """Memory of what requests under way keep; not above `held_bytes_max`."""
        self._kept_bytes_max = kept_bytes_max
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()
        self._bytes = 0
        self._held: dict[bytes, tuple[Answer, int]] = {}
        """Answers with the number of requests that keep them."""

    def parsed(
        self, name: str, text: str, references: Sequence[ResolvedReference] = (), *, stored: bool = False, compared: bool = False
    ) -> ParsedSchema:
        """The schema. UnansweredError, InvalidSchemaError, UnknownLanguageError."""
        if name not in LANGUAGES:
            raise UnknownLanguageError(name)
        if not stored:
            check_size(text, references)
        schema = _AnsweredSchema(self, SchemaText(name, text, tuple(references), stored))
        _ = schema.digest("") if compared else schema.canonical
        return schema

    def ask(self, question: SchemaQuestion, digest: bytes) -> str | list[Incompatibility]:
        """The answer to a question with this digest. UnansweredError if it is not known yet, InvalidSchemaError if it is one."""
        with self._lock:
            found = self._answers.get(digest)
            if found is not None:
                self._answers.move_to_end(digest)
            elif digest in self._held:
                found = self._held[digest][0]
            else:
                raise UnansweredError(question)
        if isinstance(found, InvalidSchemaError):
            raise InvalidSchemaError(str(found))
        return found

    def remember(self, question: SchemaQuestion, answer: Answer) -> None:
        """Keep an answer."""
        digest = question.digest()
        with self._lock:
            if digest not in self._answers:
                self._answers[digest] = answer
                self._bytes += _size(answer)
            while self._bytes > self._kept_bytes_max and len(self._answers) > 1:
                self._bytes -= _size(self._answers.popitem(last=False)[1])

    def hold(self, digest: bytes, answer: Answer) -> bool:
        """Keep an answer until it is released as often as it was held; False if the requests under way keep too much."""
        with self._lock:
            count = self._held.get(digest, (answer, 0))[1]
            if not count and self.held_bytes + _size(answer) > self.held_bytes_max:
                return False
            if not count:
                self.held_bytes += _size(answer)
            self._held[digest] = (answer, count + 1)
            return True

    def release(self, digest: bytes) -> None:
        """One request less keeps this answer."""
        with self._lock:
            answer, count = self._held.pop(digest)
            if count > 1:
                self._held[digest] = (answer, count - 1)
            else:
                self.held_bytes -= _size(answer)


class HeldAnswers:
    """The answers that one request asked for, kept until it ends."""

    def __init__(self, cache: AnswerCache) -> None:
        self._cache = cache
        self._asked: set[bytes] = set()
        self._digests: list[bytes] = []
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._digests:
            self._cache.release(self._digests.pop())

    def is_new(self, question: SchemaQuestion) -> bool:
        """Whether the request asks this for the first time."""
        return question.digest() not in self._asked

    def keep(self, question: SchemaQuestion, answer: Answer) -> bool:
        """Keep an answer if there is room; False if the request needs more than one may."""
        digest = question.digest()
        self._asked.add(digest)
        self._bytes += _size(answer)
        if self._bytes > self._cache.request_bytes_max:
            return False
        if self._cache.hold(digest, answer):
            self._digests.append(digest)
        return True


class _AnsweredSchema:
    """A schema of which only answers are known."""

    def __init__(self, cache: AnswerCache, source: SchemaText) -> None:
        self._cache = cache
        self._source = source
        self._digest = source.digest()

    @property
    def language(self) -> str:
        return self._source.language

    @property
    def canonical(self) -> str:
        return self.formatted("")

    @property
    def name(self) -> str | None:
        raise NotImplementedError("not used here")

    def normalized(self) -> ParsedSchema:
        schema = _AnsweredSchema(self._cache, self._source._replace(normalized=True))
        _ = schema.canonical
        return schema

    def formatted(self, form: str) -> str:
        found = self._ask(SchemaQuestion(self._source, form))
        assert isinstance(found, str)
        return found

    def digest(self, form: str) -> str:
        """Of the text in a form."""
        found = self._ask(SchemaQuestion(self._source, form, digested=True))
        assert isinstance(found, str)
        return found

    def check(self, older: ParsedSchema) -> list[Incompatibility]:
        assert isinstance(older, _AnsweredSchema)
        found = self._ask(SchemaQuestion(self._source, older=older._source), older._digest)
        assert isinstance(found, list)
        return found

    def _ask(self, question: SchemaQuestion, older: bytes = b"") -> str | list[Incompatibility]:
        return self._cache.ask(question, question_digest(question, self._digest, older))


def has_text(schema: ParsedSchema, form: str, text: str) -> bool:
    """Whether the schema has this text in a form; the text itself is not fetched."""
    if isinstance(schema, _AnsweredSchema):
        return schema.digest(form) == text_digest(text)
    return schema.formatted(form) == text


def _size(answer: Answer) -> int:
    if isinstance(answer, list):
        return _EACH_BYTES + sum(_EACH_BYTES + sum(map(sys.getsizeof, (each.path, each.description, each.additional))) for each in answer)
    return _EACH_BYTES + sys.getsizeof(str(answer))
