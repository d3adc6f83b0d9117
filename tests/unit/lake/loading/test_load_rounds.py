"""What happens to one topic does not keep the others: it is told once, tried again, and ends nothing by itself (mission I2)."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from moldau.lake.loading import service as service_module
from moldau.lake.loading.errors import NoSchemaError
from moldau.lake.loading.job import LoadJob, LoadJobs
from moldau.lake.loading.load import LoadResult
from moldau.lake.loading.service import LoadOutcome, LoadService, Watermarks, ending
from moldau.lake.reading.offsets import DataLossError, OffsetRange
from moldau.lake.tables.committing import LoadFencedError
from moldau.lake.tables.format import TableError
from moldau.model.errors import WorldError
from support.brokers_stand_in import BrokersStandIn

Answer = Callable[[], LoadResult]


def loaded(rows: int = 0) -> LoadResult:
    return LoadResult(rows, 0, 0, 0, 1, (OffsetRange("t", 0, 0, rows),) if rows else (), 0.0)


class _Brokers(BrokersStandIn):
    def partition_counts(self, topics: Sequence[str] | None) -> Mapping[str, int]:
        return {"good": 1, "text": 1, "_audit": 1}


class _NoWatermarks:
    def update(self, jobs: object) -> Mapping[str, int]:
        return {}


@contextmanager
def service(monkeypatch: pytest.MonkeyPatch, loads: Mapping[str, list[Any]]) -> Iterator[tuple[LoadService, list[Any]]]:
    """A service whose loads end as the lists say, a round each; it is stopped when the lists have come to their ends."""
    told: list[Any] = []

    def load(_: object, job: LoadJob, **__: object) -> LoadResult:
        answer = loads[job.topic].pop(0)
        if not any(loads.values()):
            made.stop()
        if isinstance(answer, Exception):
            raise answer
        result: LoadResult = answer() if callable(answer) else answer
        return result

    monkeypatch.setattr(service_module, "ClusterLog", _Brokers)
    monkeypatch.setattr(service_module, "load", load)
    jobs = LoadJobs("j", "b:1", "/none", pattern="[a-z]+", registry="http://r")
    made = LoadService(None, jobs, on_outcome=lambda each: told.append(each), watermarks=_NoWatermarks(), parallel=1)  # type: ignore[arg-type]
    yield made, told


def words(told: list[LoadOutcome]) -> list[tuple[str, int, str | None]]:
    return [(each.job.topic, each.rows, None if each.error is None else str(each.error)) for each in told]


def test_a_topic_without_a_schema_is_told_once_and_loaded_when_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = NoSchemaError("no schema")
    loads: dict[str, list[Any]] = {
        "good": [loaded(1), loaded(), loaded(), loaded(2), loaded()],
        "text": [waiting, waiting, waiting, loaded(7), loaded()],
    }
    with service(monkeypatch, loads) as (made, told):
        made.run(0.0)
    assert words(told) == [("good", 1, None), ("text", 0, "no schema"), ("good", 2, None), ("text", 7, None)]


def test_a_topic_that_lost_records_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says is told again when it becomes another thing, and when it is over."""
    loads: dict[str, list[Any]] = {
        "good": [loaded(1), loaded(), loaded(2), loaded(3)],
        "text": [DataLossError("gone"), DataLossError("gone"), NoSchemaError("no schema"), loaded()],
    }
    with service(monkeypatch, loads) as (made, told):
        made.run(0.0)
    assert [each for each in words(told) if each[0] == "good"] == [("good", 1, None), ("good", 2, None), ("good", 3, None)]
    assert [each[2] for each in words(told) if each[0] == "text"] == ["gone", "no schema", None]


def test_nothing_left_to_do_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: dict[str, list[Any]] = {"good": [loaded(1), DataLossError("gone"), loaded()], "text": [DataLossError("lost")] * 3}
    with service(monkeypatch, lost) as (made, _), pytest.raises(DataLossError, match="gone"):
        made.run(0.0)


def interrupt_the_main_thread() -> LoadResult:
    """While it waits for the round."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)
    return loaded(2)


def test_a_round_that_is_interrupted_when_all_its_topics_are_loaded_is_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: the last load was under way when the signal came, and nothing is left undone."""
    with service(monkeypatch, {"good": [loaded(1)], "text": [interrupt_the_main_thread]}) as (made, _):
        assert not made.round_is_loaded
        assert words(made.run_once()) == [("good", 1, None), ("text", 2, None)]
        assert made.round_is_loaded


def test_a_round_that_is_interrupted_with_a_topic_that_is_not_loaded_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: dict[str, list[Any]] = {"good": [DataLossError("gone")], "text": [interrupt_the_main_thread]}
    with service(monkeypatch, loads) as (made, _), pytest.raises(KeyboardInterrupt):
        made.run_once()
    assert not made.round_is_loaded


def test_a_round_that_ends_before_a_topic_is_loaded_to_its_end_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with service(monkeypatch, {"good": [loaded(1)], "text": [replace(loaded(1), more=True)]}) as (made, _):
        assert words(made.run_once()) == [("good", 1, None), ("text", 1, None)]
    assert not made.round_is_loaded


def test_what_ends_a_service() -> None:
    def round_of(*errors: Exception | None) -> list[LoadOutcome]:
        jobs = LoadJobs("j", "b:1", "/none", pattern=".*", registry="http://r")
        return [LoadOutcome(jobs.job(f"t{number}"), (), error) for number, error in enumerate(errors)]

    fenced, lost, away = LoadFencedError("taken over"), DataLossError("gone"), WorldError("no broker", retriable=True)
    assert ending(round_of()) is None
    assert ending(round_of(None, lost)) is None
    assert ending(round_of(lost, away)) is None, "the other one may come back"
    assert ending(round_of(NoSchemaError("yet"))) is None
    assert ending(round_of(None, fenced)) is fenced, "the whole job is taken over, whichever topic shows it first"
    assert ending(round_of(lost, OSError("disk"))) is lost


def test_a_merged_table_that_stands_still_does_not_keep_the_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are in the table: the error is reported once, and the service continues although all its topics have one."""
    error = TableError("/m/good: no order")
    left = replace(loaded(5), merge_error=error)
    with service(monkeypatch, {"good": [left, left, loaded(1)], "text": [left, left, loaded(1)]}) as (made, told):
        made.run(0.01)
    assert words(told)[:2] == [("good", 5, str(error)), ("text", 5, str(error))]
    assert words(told)[-2:] == [("good", 1, None), ("text", 1, None)]


def test_a_table_that_cannot_be_looked_at_keeps_its_watermark_and_the_service_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may answer in the next round."""

    def away(_: str) -> object:
        raise TableError("timed out")

    class Audit:
        watermarks: ClassVar = {("t", "lake"): 1}

        def look(self, *_: object) -> "Audit":
            return self

    watermarks = Watermarks("b:1")
    monkeypatch.setattr(watermarks, "_watch", Audit())
    monkeypatch.setattr(service_module, "Cluster", lambda *_, **__: nullcontext())
    monkeypatch.setattr(service_module, "format_of", away)
    assert watermarks.update([LoadJobs("j", "b:1", "/none", topics=("t",), tier="lake", registry="http://r").job("t")]) == {}
