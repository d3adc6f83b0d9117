"""A task knows how often it was tried, when it is due and where it stood first; the names of a queue's topics; categories."""

import threading
from typing import Any

import pytest

from moldau.client.message import ConsumedMessage
from moldau.tracking import queue as queue_module
from moldau.tracking.queue import ERROR_TEXT_MAX, Task, WorkQueue
from moldau.tracking.topics import category


def message(topic: str, *headers: tuple[str, bytes | None]) -> ConsumedMessage:
    return ConsumedMessage(b"v", b"k", headers, None, topic, 3, 17)


def test_a_task_remembers_its_tries() -> None:
    first = Task.of(message("images", ("trace", b"1")))
    assert (first.attempt, first.due_ms, first.origin) == (1, 0, "images-3@17")
    second = Task.of(message("images.retry.1", *first.failed(ValueError("no such image"), 5_000)))
    assert (second.attempt, second.due_ms, second.origin) == (2, 5_000, "images-3@17")
    assert second.headers == (("trace", b"1"),)
    assert dict(second.failed(OSError("disk"), 9_000)) == {
        "trace": b"1",
        "moldau.attempt": b"2",
        "moldau.due_ms": b"9000",
        "moldau.error": b"OSError: disk",
        "moldau.origin": b"images-3@17",
    }


def test_an_error_of_any_length_fits() -> None:
    assert len(dict(Task.of(message("images")).failed(ValueError("x" * 10_000), 0))["moldau.error"] or b"") == ERROR_TEXT_MAX


def test_the_topics_of_a_queue() -> None:
    queue = WorkQueue("localhost:9092", "images", retry_delays_s=(1, 2))
    assert queue.retry_topics == ["images.retry.1", "images.retry.2"]
    assert (queue.dead_letter_topic, queue.group) == ("images.dead", "images.workers")
    with pytest.raises(ValueError, match="queue images: a delay is not negative"):
        WorkQueue("localhost:9092", "images", retry_delays_s=(-1,))


@pytest.mark.parametrize("name", ["_audit", "two words", ""])
def test_a_queue_has_a_name_that_a_topic_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="topic"):
        WorkQueue("localhost:9092", name)


def test_four_categories() -> None:
    assert [category(name).compression for name in ("queuing", "metrics", "logs", "tracking")] == ["none", "lz4", "zstd", "lz4"]
    with pytest.raises(ValueError, match="a category is one of queuing, metrics, logs, tracking, not 'other'"):
        category("other")  # type: ignore[arg-type]


def test_threads_share_one_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that fail at the same time: a second producer would not be flushed."""
    made: list[object] = []

    class Slow:
        def __init__(self, *_: Any, **__: Any) -> None:
            threading.Event().wait(0.2)  # time for the other one to come, if nothing holds him
            made.append(self)

    monkeypatch.setattr(queue_module, "Producer", Slow)
    monkeypatch.setattr(WorkQueue, "ensure", lambda _: None)
    queue = WorkQueue("127.0.0.1:9", "images")
    start = threading.Barrier(2)
    found: list[object] = []

    def ask() -> None:
        start.wait(30.0)
        found.append(queue.producer)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == made * 2


@pytest.mark.parametrize("text", [b"", b"soon", b"-1", b"9" * 5_000, "²".encode(), None])
def test_headers_that_are_no_numbers_are_passed_over(text: bytes | None) -> None:
    """Whoever wrote them: a worker that failed at one would come back to it for ever."""
    task = Task.of(message("images", ("moldau.attempt", text), ("moldau.due_ms", text)))
    assert (task.attempt, task.due_ms) == (1, 0)
