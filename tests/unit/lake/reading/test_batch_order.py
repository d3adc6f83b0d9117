"""What a task learns of its batch, from the local properties of the thread that writes it."""

import pyspark
import pytest

from moldau.lake.reading.batch_order import PROPERTY, BatchOrder, batch_order

ORDER = BatchOrder(5, 7, "/counts", ["t"], {"t": ["at"]})


class Task:
    """A task of Spark with these properties."""

    def __init__(self, **properties: str) -> None:
        self.getLocalProperty = properties.get


def found(monkeypatch: pytest.MonkeyPatch, task: Task | None) -> BatchOrder | None:
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: task)
    return batch_order()


def test_an_order_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, Task(**{PROPERTY: ORDER.to_text(), "moldau.watermark_ms": "3"})) == ORDER
    assert found(monkeypatch, Task()) is None
    assert found(monkeypatch, None) is None


def test_a_query_that_is_no_job_sets_the_watermark_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the property that docs/spark-source.md names. The time is that of the task."""
    order = found(monkeypatch, Task(**{"moldau.watermark_ms": "3"}))
    assert order is not None
    assert (order.watermark_ms, order.directory, order.columns) == (3, None, {})
    assert order.time_ms > 1_500_000_000_000
