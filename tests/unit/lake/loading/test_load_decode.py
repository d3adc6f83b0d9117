"""What the schemas of a subject make of the events: columns, or dead letters where the table cannot follow (mission I2)."""

from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest

from moldau.lake.loading.decode import decoder
from moldau.lake.loading.errors import SchemaChangeError
from moldau.lake.loading.job import TO_DEAD_LETTERS, LoadJob
from moldau.lake.loading.schema import EventDecoding, decoding_of
from moldau.registry import client
from moldau.registry.client import SubjectVersion
from moldau.tracking.header import HEADER_SCHEMA
from support.avro_registry import MemoryRegistry

SUBJECT = "t-value"


class Subject(MemoryRegistry):
    """The registry that a load asks for the versions of its subject."""

    def numbers(self, subject: str) -> list[int]:
        return [each.version for each in self.versions[subject]]

    def version(self, subject: str, number: int) -> SubjectVersion:
        return self.versions[subject][number - 1]

    def change(self, *fields: dict[str, Any]) -> int:
        """The schema id of the next version."""
        return self.add({"type": "record", "name": "Event", "fields": list(fields)}, SUBJECT)


class Client:
    """How the load speaks to it."""

    registry: Subject

    def __init__(self, url: str) -> None:
        self.versions, self.version, self.referenced = self.registry.numbers, self.registry.version, self.registry.referenced

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch) -> Subject:
    registry = Subject()
    monkeypatch.setattr(Client, "registry", registry, raising=False)
    monkeypatch.setattr(client, "RegistryClient", Client)
    return registry


def job(directory: Path, registry: Any, **changes: Any) -> LoadJob:
    return LoadJob("job", "b:1", "t", str(directory / "table"), str(directory / "dead"), registry=registry, **changes)


def decoded(task: LoadJob, *values: bytes) -> tuple[list[dict[str, Any]], dict[int, str], EventDecoding]:
    """Rows, why the others are none, and what the load knew of the schemas."""
    known = decoding_of(task, None)
    assert known is not None
    with decoder(task, known) as decode:
        found = decode(pa.array(values, pa.binary()))
    return found.table.to_pylist(), dict(found.rejected), known


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def test_versions_are_read_into_the_columns_of_all(tmp_path: Path, subject: Subject) -> None:
    """A field that an event does not have is what the schema says: its default, however old the event is."""
    first = subject.change(field("n", "int"), field("gone", "string"))
    second = subject.change(field("n", "long"), field("new", "string", default="?"))
    values = [subject.framed(first, {"n": 1, "gone": "g"}), subject.framed(second, {"n": 2**40, "new": "x"})]
    rows, rejected, known = decoded(job(tmp_path, subject), *values)
    assert rows == [{"n": 1, "new": "?", "gone": "g"}, {"n": 2**40, "new": "x", "gone": None}]
    assert (rejected, known.versions, known.refused) == ({}, (1, 2), {})


@pytest.mark.parametrize(
    ("fields", "event", "message"),
    [
        ([field("n", "long")], {"n": 2**60 + 1}, "column n is double in the table and int64 in the events"),
        ([field("n", "double"), field("N", "string")], {"n": 1.0, "N": "x"}, "column N differs from column n in capital letters only"),
    ],
)
def test_what_avro_could_read_and_the_table_cannot_hold_is_a_dead_letter(
    tmp_path: Path, subject: Subject, fields: list[dict[str, Any]], event: dict[str, Any], message: str
) -> None:
    """A long would lose digits as a double, and a second field its value: neither may pass in silence."""
    first = subject.change(field("n", "double"))
    other = subject.change(*fields)
    values = [subject.framed(first, {"n": 0.5}), subject.framed(other, event), b"\0", subject.framed(first, {"n": 1.5})]
    with pytest.raises(SchemaChangeError, match=rf"subject t-value, version 2: .*: {message}"):
        decoded(job(tmp_path, subject), *values)
    rows, rejected, known = decoded(job(tmp_path, subject, on_incompatible=TO_DEAD_LETTERS), *values)
    assert rows == [{"n": 0.5}, {"n": 1.5}]
    assert rejected[1].startswith(f"schema id {other}: subject t-value, version 2: ")
    assert message in rejected[1]
    assert sorted(rejected) == [1, 2]
    assert (known.versions, set(known.refused)) == ((1,), {other})


def test_tracked_events_that_become_dead_letters_keep_their_time(tmp_path: Path, subject: Subject) -> None:
    """They lie on the day on which they happened, and are counted by their header."""
    first = subject.change(field("header", dict(HEADER_SCHEMA)), field("n", "double"))
    other = subject.change(field("header", dict(HEADER_SCHEMA)), field("n", "string"))
    known = decoding_of(job(tmp_path, subject, on_incompatible=TO_DEAD_LETTERS), None)
    assert known is not None
    assert (known.tracked, set(known.refused)) == (frozenset({first, other}), {other})
