"""The transactional sink writes each row once to Apache Kafka as it does to Moldau, wherever it dies (mission I1).

Two points and one version of Kafka; all of both with MOLDAU_TORTURE=1.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.lake.writing.driver import DriverFencedError
from moldau.lake.writing.points import DRIVER_POINTS, TASK_POINTS
from support.kafka import KafkaProcess
from support.sizes import TORTURE
from support.spark_write import PARTITIONS, Processes, Query, die_and_start_again, seen, written

pytestmark = [pytest.mark.system, pytest.mark.torture]

FULL = TORTURE
VERSIONS = ("4.3.0", "3.9.1") if FULL else ("4.3.0",)
POINTS = (*TASK_POINTS, *DRIVER_POINTS) if FULL else ("task sent", "one committed")


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KafkaProcess(request.param, Path(tmp_path_factory.mktemp("kafka"))) as process:
        yield process.bootstrap


def made(kafka: str, topic: str) -> str:
    with Cluster(kafka) as cluster:
        Admin(cluster).create_topic(topic, PARTITIONS)
    return topic


def test_killed_and_started_again(kafka: str) -> None:
    processes = Processes()
    for number, point in enumerate(POINTS):
        then, after, last = die_and_start_again(processes, kafka, made(kafka, f"sink-{number}"), point)
        assert set(written(0)) <= set(then), point
        assert after == written(0, 1), point
        assert last == written(0, 1, 2), point
    processes.close()


def test_attempts_that_do_not_count_and_a_second_query(kafka: str) -> None:
    topic = made(kafka, "second")
    first, second = (Query(kafka, topic, topic, run=run) for run in ("first", "second"))
    writer = first.begin()
    attempts = [first.task(writer, 0, 0, [b"first"], attempt) for attempt in range(2)]
    first.commit(0, attempts[1:])
    messages = [first.task(first.begin(), 1, 0, [b"fenced"])]
    writer = second.begin()
    with pytest.raises(DriverFencedError):
        first.commit(1, messages)
    second.commit(0, [second.task(writer, 0, 0, [b"second"])])
    assert seen(kafka, topic, PARTITIONS) == [b"first", b"second"]
