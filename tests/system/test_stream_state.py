"""State of one's own: timers by the event's time, exact when a batch is repeated; state by the clock; a changed job is refused."""

# ruff: noqa: N802, N803  # Spark's names
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from moldau.streams import StreamJob
from moldau.streams.errors import BatchError, CheckpointError
from moldau.streams.operator import StreamOperator
from moldau.streams.outputs import BatchNumber
from moldau.streams.reports import JobOrder, JobReport, OrderKind, encode_order, order_key
from moldau.streams.state_topic import StateTopic
from moldau.streams.table_output import TableOutput
from moldau.testing.broker import Broker
from moldau.tracking.clock import now_ms
from support import stream_visits
from support.local_cluster import wait_for
from support.spark import spark_session
from support.stream_jobs import BEGIN, in_table, in_topic, send
from support.stream_visits import IDLE_MS, SCHEMA, visits_job

pytestmark = [pytest.mark.system, pytest.mark.spark]

PAGE = Path(__file__).parents[2] / "docs" / "streams-state.md"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    pickling: Any = cloudpickle
    pickling.register_pickle_by_value(stream_visits)  # Python processes of Spark cannot import it
    yield spark_session()
    pickling.unregister_pickle_by_value(stream_visits)


@pytest.fixture
def topics(broker: Broker) -> tuple[str, str]:
    """To read and to write."""
    names = broker.unique_topic("in"), broker.unique_topic("out")
    for name in names:
        broker.create_topic(name, 2)
    return names


def page(minute: float, member: str) -> dict[str, Any]:
    """An event of so many minutes after the beginning."""
    return {"at": (BEGIN + timedelta(minutes=minute)).isoformat(), "member": member, "number": 1}


def visits_of(pages: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    """The model: who came, when, and for how many pages."""
    found: set[tuple[str, str, int]] = set()
    for member in {each["member"] for each in pages}:
        times = sorted(datetime.fromisoformat(each["at"]) for each in pages if each["member"] == member)
        begin, count, last = times[0], 0, times[0]
        for at in times:
            if at - last >= timedelta(milliseconds=IDLE_MS):
                found.add((member, begin.isoformat(), count))
                begin, count = at, 0
            count, last = count + 1, at
        found.add((member, begin.isoformat(), count))
    return found


def written(rows: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    """Of the outputs; each must be there once."""
    begins = [datetime.fromisoformat(row["begin"]) if isinstance(row["begin"], str) else row["begin"] for row in rows]
    found = [(row["member"], begin.astimezone(UTC).isoformat(), row["pages"]) for row, begin in zip(rows, begins, strict=True)]
    assert len(found) == len(set(found))
    return set(found)


def found_report(board: StateTopic, job: str) -> JobReport:
    """The last one of the job's process."""
    report = board.read().process_of(job)
    assert report is not None
    return report


def test_visits(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the page: state and timers over several starts, the last of which repeats a batch whose timers had fired."""
    source, sink = topics
    code = PAGE.read_text().split("```python\nclass Visits")[1].split("```")[0]
    assert f"class Visits{code}" in Path(stream_visits.__file__).read_text()
    first = [page(minute, member) for minute in (0, 10, 20, 29) for member in ("ada", "bob")]
    second = [page(45, "ada"), page(70, "bob"), page(75, "cyd"), page(300, "eve")]

    def run() -> None:
        visits_job(broker.bootstrap_servers, str(tmp_path), source, sink, spark=spark).run(once=True)

    send(broker.bootstrap_servers, source, first)
    run()
    write = TableOutput.write

    def failing(output: TableOutput, rows: Any, batch: BatchNumber) -> None:
        if batch.number == 3:  # timers fire: the topic has its rows
            monkeypatch.setattr(TableOutput, "write", write)
            raise BatchError("the power is cut")
        write(output, rows, batch)

    monkeypatch.setattr(TableOutput, "write", failing)
    send(broker.bootstrap_servers, source, second)
    with pytest.raises(BatchError, match="the power is cut"):
        run()
    assert len(in_topic(broker.bootstrap_servers, sink)) == 4
    assert not in_table(tmp_path / "table")
    run()
    wanted = visits_of([*first, *second]) - visits_of(second[-1:])
    assert written(in_topic(broker.bootstrap_servers, sink)) == written(in_table(tmp_path / "table")) == wanted


def test_state_by_the_clock(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path) -> None:
    """A count that is forgotten after a millisecond, and one that is not. Spark has batches without end for them: `once` ends, and a job
    that runs pauses between them, makes a savepoint and settles. Other keys are another state."""
    source, sink = topics
    bootstrap = broker.bootstrap_servers

    class Count(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.short = handle.getValueState("short", "n long", ttlDurationMs=1)
            self.long = handle.getValueState("long", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            short, long = ((each.get()[0] if each.exists() else 0) for each in (self.short, self.long))
            count = sum(1 for _ in rows)
            self.short.update((short + count,))
            self.long.update((long + count,))
            yield Row(member=str(key[0]), short=short + count, long=long + count)

    def run(key: str = "member", *, once: bool = True) -> None:
        job = StreamJob(source, brokers=bootstrap, directory=str(tmp_path / "job"), spark=spark)
        pages = job.topic(source, format="json", schema=SCHEMA, time="at")
        counts = pages.groupBy(key).transformWithState(Count(), "member string, short long, long long", "update", "ProcessingTime")
        job.to_topic(counts, sink, mode="update")
        job.run(once=once)

    send(bootstrap, source, [page(0, "ada"), page(1, "ada")])
    run()
    operator, board = StreamOperator(bootstrap), StateTopic(bootstrap)
    ended = found_report(board, source)
    assert ended.settled
    before = ended.queries[0].batch or 0
    send(bootstrap, source, [page(0, "ada"), page(1, "ada")])
    begin = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, once=False)
        wait_for(lambda: running.done() or len(in_topic(bootstrap, sink)) == 2)
        operator.savepoint(source, str(tmp_path / "savepoint"), 300)
        order = JobOrder(found_report(board, source).instance, now_ms(), OrderKind.SETTLE)
        board.write({order_key(source): encode_order(order)})
        running.result(300)
    ended = found_report(board, source)
    assert ended.settled
    assert (ended.queries[0].batch or 0) - before <= time.monotonic() - begin + 2
    assert sorted((row["short"], row["long"]) for row in in_topic(bootstrap, sink)) == [(2, 2), (2, 4)]
    operator.close()
    board.close()
    with pytest.raises(
        CheckpointError, match=r"stateful operator 1 \(TransformWithStateInPySpark\), keys was member STRING, and is number INT"
    ):
        run("number")
