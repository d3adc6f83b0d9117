"""What the registry keeps stays within its bound whatever records say: what would go beyond it is left out, with one line (F1)."""

import gc
import json
import logging
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from moldau.registry import decisions
from moldau.registry import state as module
from moldau.registry.limits import count_elements
from moldau.registry.records import (
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    NoopKey,
    SchemaKey,
    SchemaVersion,
    Write,
    encode_config,
    encode_context,
    encode_key,
    encode_schema,
)
from moldau.registry.state import RegistryState
from moldau.registry.subjects import Reference

MOST = 4 << 20


def schema(number: int, subject: str = "", **fields: Any) -> Write:
    subject = subject or f"s{number}"
    fields = {"text": f'"x{number}"', **fields}
    return encode_key(SchemaKey(subject, 1)), encode_schema(SchemaVersion(subject, 1, number, **fields))


def config(number: int, **fields: Any) -> Write:
    return encode_key(ConfigKey(f"s{number}")), encode_config(f"s{number}", fields)


def escaped(number: int) -> Write:
    key, value = schema(number, text="@" + "a" * 10_000 + str(number))
    assert value is not None
    return key, value.replace(b"@", rb"\ud83d\ude00")


SHAPES: dict[str, Callable[[int], Write]] = {
    "small": schema,
    "long names": lambda number: schema(number, "s" * 3000 + str(number)),
    "contexts": lambda number: schema(number, f":.c{number}:s"),
    "wide characters": lambda number: schema(number, text="\U0001f600" + "a" * 10_000 + str(number)),
    "wide characters, escaped": escaped,
    "references": lambda number: schema(number, references=tuple(Reference(f"{n}", f"{number}.{n}", 1) for n in range(500))),
    "tags": lambda number: schema(number, metadata={"tags": {f"{n}": [f"{n}"] for n in range(2000)}}),
    "properties": lambda number: schema(number, metadata={"properties": {f"{n}": f"{n}" for n in range(2000)}}),
    "rules": lambda number: schema(number, rule_set={"domainRules": [{"name": f"{n}", "x": {}} for n in range(1000)]}),
    "configurations": lambda number: config(number, normalize=True),
    "long configurations": lambda number: config(number, compatibilityGroup="x" * 100_000),
    "empty lists": lambda number: config(number, defaultMetadata={"a": [[]] * 5000}),
    "empty texts": lambda number: config(number, defaultMetadata={"a": [""] * 5000}),
}


def most(shape: str) -> int:
    """A quarter is enough where records are small against it."""
    return MOST if shape in ("tags", "rules", "empty lists", "empty texts") else MOST // 4


def measure(shape: str) -> tuple[int, int, int]:
    """Bytes that a state takes which is full of such records, those that it counts, and how many records that took."""
    state = RegistryState(memory_bytes_max=most(shape))
    state.apply(0, 0, *SHAPES[shape](0))  # what is made once
    gc.collect()
    tracemalloc.start()
    try:
        before, number = tracemalloc.get_traced_memory()[0], 0
        while not state.left_out:
            number += 1
            state.apply(number, 0, *SHAPES[shape](number))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    return taken, state.held_bytes, number


@pytest.fixture(scope="module")
def measured() -> dict[str, tuple[int, int, int]]:
    """In a process of its own: what threads of other tests take meanwhile would count too."""
    found: dict[str, tuple[int, int, int]] = json.loads(subprocess.run([sys.executable, __file__], check=True, capture_output=True).stdout)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_kept_takes_no_more_memory_than_is_counted(shape: str, measured: dict[str, tuple[int, int, int]]) -> None:
    """Counted in bytes of JSON, 48 MiB of references, tags or empty lists took 600 to 1,200 MB."""
    taken, counted, number = measured[shape]
    assert taken <= counted <= most(shape)
    assert number > 1


def test_records_that_do_not_fit_are_left_out_with_one_line_and_what_their_key_had_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    state = RegistryState(memory_bytes_max=10_000)
    state.apply(0, 0, *config(1, compatibilityGroup="old"))
    state.apply(1, 0, *schema(1))
    for offset in range(2, 50):
        state.apply(offset, 0, *config(1, compatibilityGroup="x" * 9000))
    assert state.left_out == 48
    assert state.configs == {}, "not the former value, which holds no longer"
    assert [each.id for each in state.versions("s1")] == [1]
    assert caplog.text.count("registry.memory.max.bytes") == 1
    state.apply(50, 0, *config(2, normalize=True))
    assert state.configs == {"s2": {"normalize": True}}, "what fits is kept"


def test_a_record_that_would_take_more_than_all_may_is_not_even_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    state, loads = RegistryState(memory_bytes_max=MOST), json.loads
    decoded: list[int] = []

    def noted(data: bytes) -> object:
        decoded.append(len(data))
        return loads(data)

    monkeypatch.setattr(json, "loads", noted)
    state.apply(0, 0, b"[" * MOST, b"{}")
    for key in (encode_key(ConfigKey("s")), encode_key(DeleteSubjectKey("s")), encode_key(NoopKey())):
        state.apply(1, 0, key, b"[]," * (MOST // 100))
        state.apply(2, 0, key, b'"' * MOST)
    assert state.left_out == 7
    assert max(decoded) < 100


def test_quotes_without_end_are_counted_without_being_cut_apart() -> None:
    tracemalloc.start()
    assert count_elements(b'"' * 4_000_000) == 4_000_000
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_records_that_make_no_sense_have_no_line_each_without_end(caplog: pytest.LogCaptureFixture) -> None:
    state = RegistryState()
    with caplog.at_level(logging.ERROR):
        for offset in range(1000):
            state.apply(offset, 0, b"{}", b"{}")
    assert len(caplog.messages) == 100


def test_schemas_that_came_and_went_leave_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ids are remembered, so that none is given twice, but not without end; of contexts nothing stays."""
    monkeypatch.setattr(module, "_RETIRED_KEPT", 10)
    state = RegistryState()
    for number in range(1, 101):
        for subject in ("s", f":.c{number}:s"):
            key, value = schema(number, subject)
            state.apply(0, 0, key, value)
            state.apply(0, 0, key, None)
        context = encode_key(ContextKey(f".d{number}"))
        state.apply(0, 0, context, encode_context(f".d{number}"))
        state.apply(0, 0, context, None)
    assert len(state._retired) == 10
    assert state.next_id(".") == 101
    assert state.held_bytes == 0
    for table in (state._by_id, state._ids, state._id_max):
        assert set(table) <= {"."}


def stored(number: int, form: str) -> Write:
    """A version as registries have written it over the years."""
    subject = f"s{number}"
    value: dict[str, Any] = {"subject": subject, "version": 1, "id": number, "schema": f'"\u00e4{number}"'}
    if form == "md5":
        value["md5"] = "lFKFpbDy2FNSXSGIUPhvJg=="
    if form == "guid":
        value |= {"guid": "x", "ts": 1, "offset": 3}
    if form != "without deleted":
        value["deleted"] = False
    return encode_key(SchemaKey(subject, 1)), json.dumps(value, separators=(",", ":"), ensure_ascii=form != "md5").encode()


@pytest.mark.parametrize("form", ["md5", "guid", "plain", "without deleted", "ours"])
def test_a_full_registry_that_has_left_out_records_deletes_softly_and_so_does_one_that_starts_over_them(form: str) -> None:
    """The record of a deletion was longer than the one that it replaces: it was refused, or left out at the next start."""
    state, records, number = RegistryState(memory_bytes_max=20_000), {}, 0
    while not state.left_out:
        number += 1
        key, value = schema(number) if form == "ours" else stored(number, form)
        state.apply(number, 0, key, value)
        records[key] = value
    for deleted in range(1, number):
        decision = decisions.delete_version(state, f"s{deleted}", 1, permanent=False)
        assert state.growth(decision.writes) <= 0
        for key, value in decision.writes:
            state.apply(number + deleted, 0, key, value)
            records[key] = value
    again = RegistryState(memory_bytes_max=20_000)
    for offset, (key, value) in enumerate(records.items()):
        again.apply(offset, 0, key, value)
    assert again.left_out <= state.left_out == 1
    for each in (state, again):
        assert each.held_bytes <= 20_000
        assert [each.versions(f"s{every}")[0].deleted for every in range(1, number)] == [True] * (number - 1)


if __name__ == "__main__":
    print(json.dumps({shape: measure(shape) for shape in SHAPES}))
