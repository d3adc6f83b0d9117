"""What is known of schemas without reading them again: answers of worker processes, by the digest of the question.

Decisions use it like the languages themselves. What is not known yet is raised as a question, `NotUnderstoodError`; the caller
has it answered in another process, remembers the answer here, and decides again. So deciding never waits for a schema and never
costs more than look-ups, and no schema delays changes that wait for their lock.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from moldau.registry.schemas.bounds import check_size
from moldau.registry.schemas.language import Incompatibility, InvalidSchemaError, ParsedSchema, ResolvedReference
from moldau.registry.schemas.languages import LANGUAGES, UnknownLanguageError
from moldau.registry.schemas.questions import Answer, Question, Source

KEPT_BYTES_MAX = 4 << 20
"""Characters of all answers that are kept; the least used goes first."""
_EACH_BYTES = 256


class NotUnderstoodError(Exception):
    """A question has to be answered before this can be decided."""

    def __init__(self, question: Question) -> None:
        super().__init__("a schema has to be read first")
        self.question = question


class Understood:
    """Answers by question. Any thread may use it."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()
        self._bytes = 0

    def parsed(self, name: str, text: str, references: Sequence[ResolvedReference] = (), *, stored: bool = False) -> ParsedSchema:
        """The schema. NotUnderstoodError, InvalidSchemaError, UnknownLanguageError."""
        if name not in LANGUAGES:
            raise UnknownLanguageError(name)
        if not stored:
            check_size(text, references)
        schema = _UnderstoodSchema(self, Source(name, text, tuple(references), stored))
        _ = schema.canonical
        return schema

    def ask(self, question: Question) -> str | list[Incompatibility]:
        """The answer. NotUnderstoodError if it is not known yet, InvalidSchemaError if it is one."""
        digest = question.digest()
        with self._lock:
            found = self._answers.get(digest)
            if found is None:
                raise NotUnderstoodError(question)
            self._answers.move_to_end(digest)
        if isinstance(found, InvalidSchemaError):
            raise InvalidSchemaError(str(found))
        return found

    def remember(self, question: Question, answer: Answer) -> None:
        """Keep an answer."""
        digest = question.digest()
        with self._lock:
            if digest not in self._answers:
                self._answers[digest] = answer
                self._bytes += _size(answer)
            while self._bytes > self._kept_bytes_max and len(self._answers) > 1:
                self._bytes -= _size(self._answers.popitem(last=False)[1])


class _UnderstoodSchema:
    """A schema of which only answers are known."""

    def __init__(self, understood: Understood, source: Source) -> None:
        self._understood = understood
        self._source = source

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
        schema = _UnderstoodSchema(self._understood, self._source._replace(normalized=True))
        _ = schema.canonical
        return schema

    def formatted(self, form: str) -> str:
        found = self._understood.ask(Question(self._source, form))
        assert isinstance(found, str)
        return found

    def check(self, older: ParsedSchema) -> list[Incompatibility]:
        assert isinstance(older, _UnderstoodSchema)
        found = self._understood.ask(Question(self._source, older=older._source))
        assert isinstance(found, list)
        return found


def _size(answer: Answer) -> int:
    if isinstance(answer, list):
        return _EACH_BYTES + sum(_EACH_BYTES + len(each.path) + len(each.description) for each in answer)
    return _EACH_BYTES + len(str(answer))
