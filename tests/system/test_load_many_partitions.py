"""A topic of many partitions with few records each is one task and one file, and a few requests."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from moldau.client import Producer
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.load import load
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.tables.opening import opened
from moldau.testing.broker import Broker
from support.tasks_here import TasksHere

pytestmark = pytest.mark.system

PARTITIONS, EACH = 200, 10


def test_hundreds_of_small_partitions_are_one_file_and_a_few_requests(
    moldau: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More cores make no more files of it; a request for each partition, or for the topic before it, would take the time of all others."""
    topic = moldau.create_topic(moldau.unique_topic("many"), PARTITIONS)
    with Producer(moldau.bootstrap_servers) as producer:
        for number in range(PARTITIONS * EACH):
            producer.send(topic, f'{{"n":{number}}}', partition=number % PARTITIONS, timestamp=1_372_680_000_000)
    asked = Counter[str]()
    for name in ("topic_id", "fetch_many"):
        monkeypatch.setattr(ClusterLog, name, counting(asked, name))
    monkeypatch.setattr(TasksHere, "defaultParallelism", 16)
    job = LoadJob("j", moldau.bootstrap_servers, topic, str(tmp_path / "table"), str(tmp_path / "dead"), pa.schema([("n", pa.int64())]))
    result = load(TasksHere(), job)
    assert (result.rows, result.files, len(opened(job.table).files())) == (PARTITIONS * EACH, 1, 1)
    assert asked["topic_id"] + asked["fetch_many"] < PARTITIONS // 4, asked


def counting(asked: Counter[str], name: str) -> Any:
    real = getattr(ClusterLog, name)

    def count(self: ClusterLog, *given: Any) -> Any:
        asked[name] += 1
        return real(self, *given)

    return count
