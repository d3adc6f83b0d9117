"""A decision that needs much of many schemas is made, or refused with what takes too much; it never starts again for ever (F1)."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from moldau.registry import lookups
from moldau.registry.body import read_schema
from moldau.registry.limits import WorkLimits
from moldau.registry.records import SchemaKey, SchemaVersion, encode_key, encode_schema
from moldau.registry.schema_workers import NotReadableError, SchemaWorkers
from moldau.registry.schemas.answers import Answer, AnswerCache, SchemaQuestion, UnansweredError, answer
from moldau.registry.state import RegistryState


class Here(SchemaWorkers):
    """Answers questions in this process, and counts them."""

    def __init__(self, cache: AnswerCache) -> None:
        super().__init__(cache, WorkLimits())
        self.asked: Counter[bytes] = Counter()

    def _ask(self, question: SchemaQuestion) -> Answer:
        self.asked[question.digest()] += 1
        return answer(question)


def text(number: int, size: int) -> str:
    added = {"name": f"f{number}", "type": ["null", "string"], "default": None, "doc": "x" * size}
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, added]}, separators=(",", ":"))


def filled(cache: AnswerCache, versions: int, size: int) -> RegistryState:
    """A subject `s` with so many versions of this size that all count."""
    state = RegistryState(cache.parsed)
    state.configs[None] = {"compatibilityLevel": "FULL_TRANSITIVE"}
    for number in range(1, versions + 1):
        value = encode_schema(SchemaVersion("s", number, number, text(number, size)))
        state.apply(number, 0, encode_key(SchemaKey("s", number)), value)
    assert not state.left_out
    return state


def settle(workers: SchemaWorkers, *decide: Callable[[], Any]) -> list[Any]:
    """What comes of decisions that are made at once."""

    async def each(one: Callable[[], Any]) -> Any:
        with workers.hold() as held:
            return await workers.settle(executor, one, held)

    async def together() -> list[Any]:
        return await asyncio.gather(*map(each, decide), return_exceptions=True)

    with ThreadPoolExecutor(2) as executor:
        found = asyncio.run(together())
    workers.close()
    return found


def compatibility(state: RegistryState, number: int, size: int) -> Callable[[], Any]:
    body = read_schema({"schema": text(number, size)})
    return lambda: lookups.compatibility(state, "s", None, body, normalize=False)


def test_a_comparison_with_many_large_versions_asks_each_question_once() -> None:
    """Their texts did not fit into what is kept, so each attempt lacked what the last one had asked for, 2,000 times."""
    cache = AnswerCache()
    state, workers = filled(cache, 12, 500_000), Here(cache)
    assert settle(workers, compatibility(state, 13, 500_000)) == [[]]
    assert set(workers.asked.values()) == {1}
    assert len(workers.asked) == 1 + 12 * 3
    assert cache.held_bytes == 0


def test_requests_at_once_that_need_more_than_is_kept_for_later_ones_do_not_take_it_from_each_other() -> None:
    cache = AnswerCache(kept_bytes_max=100_000)
    state, workers = filled(cache, 6, 1_000), Here(cache)
    assert settle(workers, *(compatibility(state, number, 90_000) for number in range(7, 15))) == [[]] * 8
    assert max(workers.asked.values()) <= 8
    assert cache.held_bytes == 0


def test_a_request_that_needs_more_than_one_may_is_refused_with_the_bound() -> None:
    cache = AnswerCache(kept_bytes_max=1_000, request_bytes_max=50_000)
    state, workers = filled(cache, 2, 1_000), Here(cache)
    (error,) = settle(workers, compatibility(state, 3, 90_000))
    assert isinstance(error, NotReadableError)
    assert (error.status, error.code) == (422, 42201)
    assert "take more than 50,000 bytes" in error.message
    assert cache.held_bytes == 0


def test_what_all_requests_under_way_keep_has_a_bound_and_a_question_asked_twice_ends_one() -> None:
    cache = AnswerCache(kept_bytes_max=1_000, held_bytes_max=5_000)
    state, workers = filled(cache, 2, 1_000), Here(cache)
    (error,) = settle(workers, compatibility(state, 3, 90_000))
    assert isinstance(error, NotReadableError)
    assert (error.status, error.code) == (500, 50002)
    assert "take more than 5,000 bytes" in error.message
    assert sum(workers.asked.values()) < 10
    assert cache.held_bytes == 0


def test_a_registered_schema_that_cannot_be_read_is_named_as_before() -> None:
    cache = AnswerCache()
    state, workers = filled(cache, 1, 10), Here(cache)
    state.apply(2, 0, encode_key(SchemaKey("s", 2)), encode_schema(SchemaVersion("s", 2, 2, "nonsense")))
    (error,) = settle(workers, compatibility(state, 3, 10))
    assert cast("Any", error).code == 42201
    assert "subject s version 2" in str(error)


def test_questions_that_differ_have_other_digests() -> None:
    cache = AnswerCache()
    found = []
    for stored, compared in ((False, False), (True, False), (True, True)):
        with pytest.raises(UnansweredError) as missing:
            cache.parsed("AVRO", '"int"', stored=stored, compared=compared)
        found.append(missing.value.question.digest())
    assert len(set(found)) == 3
