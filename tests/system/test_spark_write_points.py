"""Wherever the driver or a task of a transactional write dies, a reader of committed records sees each row once or, undecided, never (I1).

The sink is called as Spark calls it; `test_spark_write` has Spark itself. The reader is librdkafka's.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.client.cluster import Cluster
from moldau.lake.writing.driver import DriverFencedError
from moldau.lake.writing.encoding import layout
from moldau.lake.writing.machine import LostBatchError, WriteFailedError
from moldau.lake.writing.options import parse_write_options
from moldau.lake.writing.points import DRIVER_POINTS, TASK_POINTS
from moldau.lake.writing.task import TaskFencedError, TaskWriter
from moldau.lake.writing.transactions import TransactionRequests
from moldau.model.identity import TopicPartition
from moldau.testing.broker import Broker
from support.spark_write import (
    COUNT,
    PARTITIONS,
    SCHEMA,
    TASKS,
    Processes,
    Query,
    die_and_start_again,
    rows,
    seen,
    values_of,
    written,
)

pytestmark = pytest.mark.system

DECIDED = DRIVER_POINTS.index("decided")
POINTS = [*TASK_POINTS, *DRIVER_POINTS]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}
    with Broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(broker.unique_topic("sink"), PARTITIONS)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.close()


@pytest.fixture(scope="module")
def table_of_kills() -> Iterator[list[tuple[object, ...]]]:
    """Printed at the end: pytest shows it with -s, or where a test fails."""
    lines: list[tuple[object, ...]] = []
    yield lines
    print(f"\n{'killed at':<20} {'seen then':>10} {'seen after restart':>20} {'distinct':>9} {'written':>8}")
    for point, then, after, distinct, count in lines:
        print(f"{point:<20} {then:>10} {after:>20} {distinct:>9} {count:>8}")


def open_transactions(broker: Broker, query: str) -> list[str]:
    with Cluster(broker.bootstrap_servers) as cluster:
        return [each for each in TransactionRequests(cluster).open_ones() if each.startswith(f"moldau-spark-{query}-")]


def wait_until_aborted(broker: Broker, query: str) -> None:
    """Until brokers have aborted for their age all transactions that tasks have open."""
    deadline = time.monotonic() + 60
    while open_transactions(broker, query):
        assert time.monotonic() < deadline, "the transactions are still open"
        time.sleep(0.02)


@pytest.mark.parametrize("point", POINTS, ids=[each.replace(" ", "-") for each in POINTS])
def test_killed_and_started_again(
    point: str, broker: Broker, topic: str, processes: Processes, table_of_kills: list[tuple[object, ...]]
) -> None:
    """Batch 0 is whole; batch 1 dies at the point, and Spark writes it again; then comes batch 2."""
    then, after, last = die_and_start_again(processes, broker.bootstrap_servers, topic, point)
    table_of_kills.append((point, len(then), len(after), len(set(after)), len(written(0, 1))))
    decided = point in DRIVER_POINTS[DECIDED:]
    assert len(then) >= len(written(0)) if decided else then == written(0), "nothing is seen of what is not decided"
    assert after == written(0, 1)
    assert last == written(0, 1, 2)
    assert not open_transactions(broker, topic)


def test_a_batch_that_spark_repeats_is_not_written_again(broker: Broker, topic: str) -> None:
    """Spark repeats a batch that it died behind before it had noted it down itself."""
    query = Query(broker.bootstrap_servers, topic, topic)
    for _ in range(2):
        query.write(5, values_of(5, TASKS, COUNT))
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == written(5)
    again = Query(broker.bootstrap_servers, topic, topic, run="a new checkpoint")
    again.write(0, values_of(0, TASKS, COUNT))
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == written(0, 5), "with a new checkpoint batches are counted anew"


def test_a_task_that_fails_once(broker: Broker, topic: str) -> None:
    """Its rows are aborted at once; the next attempt's count."""

    def failing() -> Iterator[Any]:
        yield from rows([b"half"])
        raise RuntimeError("the disk is on fire")

    query = Query(broker.bootstrap_servers, topic, topic)
    writer = query.begin()
    with pytest.raises(RuntimeError, match="on fire"):
        query.task_of(writer, 0, 0, failing())
    assert not open_transactions(broker, topic)
    query.commit(0, [query.task(writer, 0, 0, [b"whole"], attempt=1)])
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == [b"whole"]


def test_two_attempts_of_a_task_are_done(broker: Broker, topic: str) -> None:
    """Speculation. Spark names one, whichever it is, to the driver; the other is aborted."""
    query = Query(broker.bootstrap_servers, topic, topic)
    for batch, winner in ((0, 0), (1, 1)):
        writer = query.begin()
        attempts = [query.task(writer, batch, 0, [b"%d" % batch], attempt) for attempt in range(2)]
        query.commit(batch, [attempts[winner]])
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == [b"0", b"1"]
    assert not open_transactions(broker, topic)


def test_a_batch_that_fails_leaves_nothing_open(broker: Broker, topic: str) -> None:
    """A task that fails for good has no message."""
    query = Query(broker.bootstrap_servers, topic, topic)
    messages = [query.task(query.begin(), 0, 0, [b"lost"]), None]
    assert open_transactions(broker, topic)
    query.abort(0, messages)
    assert not open_transactions(broker, topic)
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == []
    assert seen(broker.bootstrap_servers, topic, PARTITIONS, isolation_level="read_uncommitted") == [b"lost"]


def test_a_second_query_with_the_same_name_fences_the_first(broker: Broker, topic: str) -> None:
    first, second = (Query(broker.bootstrap_servers, topic, topic, run=run) for run in ("first", "second"))
    messages = [first.task(first.begin(), 0, 0, [b"first"])]
    writer = second.begin()
    with pytest.raises(DriverFencedError, match=f"query {topic}: another driver has taken it over"):
        first.commit(0, messages)
    first.abort(0, messages)
    second.commit(0, [second.task(writer, 0, 0, [b"second"])])
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == [b"second"]


def test_a_task_that_is_fenced_while_it_writes(broker: Broker, topic: str) -> None:
    query = Query(broker.bootstrap_servers, topic, topic)
    writer = query.begin()

    def interrupted() -> Iterator[Any]:
        yield from rows([b"zombie"])
        query.begin()
        yield from rows([b"late"])
        yield from rows([b"later"])

    with pytest.raises(TaskFencedError, match=f"moldau-spark-{topic}-0-0 was ended while the task wrote"):
        query.task_of(writer, 0, 0, interrupted())
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == []


def test_a_broker_that_restarts_while_a_task_writes(broker: Broker, topic: str) -> None:
    """What has no answer is sent again, and is there once; without transactions, too."""
    values = [b"%04d" % number for number in range(3000)]

    def interrupted() -> Iterator[Any]:
        yield from rows(values[:1000])
        broker.restart()
        yield from rows(values[1000:2000])
        yield from rows(values[2000:])

    query = Query(broker.bootstrap_servers, topic, topic)
    query.commit(0, [query.task_of(query.begin(), 0, 0, interrupted())])
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == values
    other = broker.create_topic(broker.unique_topic("sink"), PARTITIONS)
    options = parse_write_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": other}, streaming=False)
    with TaskWriter(options, layout(SCHEMA, options)) as writer:
        assert writer.write(interrupted()).rows == len(values)
    assert seen(broker.bootstrap_servers, other, PARTITIONS) == values


def test_a_decision_is_found_behind_many_of_other_queries(broker: Broker, topic: str) -> None:
    """They all share a topic; reading goes back from its end, further each time. One that is open is waited for."""
    ours, other = (Query(broker.bootstrap_servers, topic, name) for name in (f"{topic}-ours", f"{topic}-other"))
    ours.write(0, [[b"x"]])
    for batch in range(40):  # four offsets each: two records and two markers
        other.write(batch, [[]])
    with Cluster(broker.bootstrap_servers) as cluster:
        transactions = TransactionRequests(cluster)
        stuck = transactions.take_over("moldau-spark:stuck", 200)
        transactions.add(stuck, [TopicPartition("_spark_commits", 0)])
        claim = ours.begin().claim
    assert claim is not None
    assert claim.last is not None
    assert (claim.last.query, claim.last.batch) == (f"{topic}-ours", 0)


def test_a_time_out_before_the_decision_fails_the_batch_which_runs_again(broker: Broker, topic: str) -> None:
    short = Query(broker.bootstrap_servers, topic, topic, transactionTimeout="3s")
    messages = [short.task(short.begin(), 0, 0, [b"slow"])]
    wait_until_aborted(broker, topic)
    with pytest.raises(WriteFailedError, match=f"query {topic}: batch 0 is not written, and none of its rows is seen"):
        short.commit(0, messages)
    short.abort(0, messages)
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == []
    Query(broker.bootstrap_servers, topic, topic).write(0, [[b"slow"]])
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == [b"slow"]


@pytest.mark.parametrize(("word", "again"), [("skip", 0), ("again", 1)])
def test_a_time_out_behind_the_decision_fails_the_query_by_name(
    word: str, again: int, broker: Broker, topic: str, processes: Processes
) -> None:
    """At every start, until a person has said what is to become of the batch. Which of its transactions were committed is told.

    Brokers abort what is too old as they abort what a producer leaves whose id another takes over; that needs no waiting.
    """
    assert processes.write(broker.bootstrap_servers, topic, 3, "one committed").startswith("killed")
    with Cluster(broker.bootstrap_servers) as cluster:
        for transactional_id in open_transactions(broker, topic):
            TransactionRequests(cluster).take_over(transactional_id, 60_000)
    half = seen(broker.bootstrap_servers, topic, PARTITIONS)
    query = Query(broker.bootstrap_servers, topic, topic)
    for _ in range(2):
        with pytest.raises(LostBatchError) as caught:
            query.begin()
        for part in (f"query {topic}: batch 3 was decided", "2 of its 3 transactions", f"{topic}-1-0", f"{topic}-2-0", "20 rows in"):
            assert part in str(caught.value)
        assert f"moldau-spark-{topic}-0-0" not in str(caught.value)
    Query(broker.bootstrap_servers, topic, topic, lostBatch=f"3:{word}").write(3, values_of(3, TASKS, COUNT))
    query.write(4, values_of(4, TASKS, COUNT))
    assert half == sorted(values_of(3, TASKS, COUNT)[0])
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == sorted(half + again * written(3) + written(4))
