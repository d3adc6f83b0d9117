"""`moldau load`: many topics in rounds, from the command line too; what a round cannot do the next one does (missions I2, H4)."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.audit.rules import Rules
from moldau.cli.load import load_command
from moldau.client import Producer
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.lake.loading.job import LoadJobs
from moldau.lake.loading.service import LoadOutcome, LoadService, Watermarks
from moldau.lake.reading.offsets import DataLossError
from moldau.lake.table import IncompleteTableError, completion_watermark, open_table, wait_until_complete
from moldau.model.identity import Offset, TopicPartition
from moldau.registry.client import RegistryClient
from moldau.testing.broker import Broker
from support.console import Console
from support.load_world import NOON_MS, LoadWorld
from support.spark import spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]

LIMIT_S = 240.0
NOON = datetime.fromtimestamp(NOON_MS / 1000, UTC)


def jobs_of(world: LoadWorld, directory: Path, **changes: Any) -> LoadJobs:
    given = {"topics": (world.topic,), "registry": world.broker.registry_url, "writers": 1, **changes}
    return LoadJobs("service", world.broker.bootstrap_servers, str(directory), **given)


def later(now_ms: int) -> Rules:
    """The audit's rules for somebody who has waited until everything is due."""
    return Rules(now_ms=now_ms + 3_600_000)


def test_a_round_loads_all_topics_and_says_how_far_they_are_complete(broker: Broker, tmp_path: Path) -> None:
    """One topic is complete up to its last window; another one, which lost its beginning before it was loaded, up to none."""
    good, bad = LoadWorld(broker, tmp_path), LoadWorld(broker, tmp_path)
    for world in (good, bad):
        world.publish(30)
    with Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).delete_records({TopicPartition(bad.topic, 0): Offset(3)})
    told: list[LoadOutcome] = []
    jobs = jobs_of(good, tmp_path, topics=(good.topic, bad.topic), records_max=10)
    watermarks = Watermarks(broker.bootstrap_servers, later)
    service = LoadService(spark_session(), jobs, on_outcome=told.append, watermarks=watermarks)
    outcomes = service.run_once()
    assert [(each.error, each.rows + sum(load.dead_letters for load in each.loads)) for each in outcomes] == [(None, 30), (None, 27)]
    assert all(len(each.loads) > 2 for each in outcomes), "in small commits"
    assert sorted(each.job.topic for each in told) == sorted((good.topic, bad.topic))
    assert good.state() == good.complete()
    last = NOON + timedelta(milliseconds=(good.time_of(28) - NOON_MS) // 600_000 * 600_000 + 600_000)
    assert wait_until_complete(good.job.table, last, 0) == last
    assert completion_watermark(bad.job.table) is None
    with pytest.raises(IncompleteTableError, match="it has no completion watermark yet"):
        wait_until_complete(bad.job.table, NOON, 0)
    told.clear()
    version = open_table(good.job.table)
    assert [each.rows for each in service.run_once()] == [0, 0]
    assert told == [], "nothing has happened"
    assert open_table(good.job.table).version == version.version  # type: ignore[union-attr]


def test_a_running_service_takes_what_comes_and_ends_at_what_nobody_can_mend(broker: Broker, tmp_path: Path) -> None:
    """It is asked to end; and the next one is ended by records that are gone."""
    world = LoadWorld(broker, tmp_path)
    seen = threading.Condition()
    rows = [0]

    def told(outcome: LoadOutcome) -> None:
        with seen:
            rows[0] += outcome.rows
            seen.notify_all()

    service = LoadService(spark_session(), jobs_of(world, tmp_path), on_outcome=told, compact=True)
    thread = threading.Thread(target=service.run, args=(0.05,))
    thread.start()
    try:
        for _ in range(2):
            world.publish(12)
            with seen:
                assert seen.wait_for(lambda: rows[0] == world.published, LIMIT_S), rows
    finally:
        service.stop()
        thread.join(LIMIT_S)
    assert world.state() == world.complete()
    broker.delete_topic(world.topic)
    with pytest.raises(DataLossError, match=f"topic {world.topic} was deleted"):
        LoadService(spark_session(), jobs_of(world, tmp_path)).run(0.05)


def test_the_command_loads_what_a_file_describes(broker: Broker, tmp_path: Path) -> None:
    """Avro by hour and JSON by day in one job; the second topic's table is compacted; a topic that is missing is told last."""
    world = LoadWorld(broker, tmp_path)
    world.publish(30)
    clicks = broker.create_topic(broker.unique_topic("clicks"), 1)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send(clicks, json.dumps({"member": number}), timestamp=NOON_MS)
        producer.send(clicks, "no click", timestamp=NOON_MS)
    lake = tmp_path / "lake"
    file = tmp_path / "job.toml"
    file.write_text(f"""
name = "from a file"
bootstrap = "{broker.bootstrap_servers}"
registry = "{broker.registry_url}"
to = "{lake}"
topics = ["{world.topic}", "{clicks}"]
partition = "hour"
records_max = 4

[topic.{clicks}]
columns = {{ member = "long" }}
partition = "day"
""")
    console = Console(limit_s=LIMIT_S)
    done = console.ok("load", str(file), "--compact", "--memory", "512m", "--max-dead-letters", "100%")
    lines = {line.partition(":")[0]: line for line in done.lines if "row" in line}
    assert "27 rows, 3 dead letters, " in lines[world.topic]
    assert "5 rows, 1 dead letter, 2 files, version 2, in " in lines[clicks]
    assert f"{clicks}: compacted 2 files into 1, version 3" in done.lines
    assert sorted(row["member"] for row in world.rows(str(lake / clicks))) == list(range(5))
    assert sorted(row["n"] for row in world.rows(str(lake / world.topic))) == [n for n in range(30) if n % 10 != 9]
    assert {tuple(each.partition) for each in open_table(str(lake / world.topic)).files()} == {("event_day", "event_hour")}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--to", "x", "--topics", "t", "--registry", "http://r"], 2, "'name' is missing"),
        (["--to", "x", "--name", "j", "--registry", "http://r"], 2, "give topics or a pattern"),
        (["--to", "x", "--name", "j", "--topics", "t"], 2, "give a registry for Avro events (--registry), or columns for JSON events"),
        (["--to", "x", "--name", "j", "--topics", "t", "--every", "soon"], 2, "'soon' is not a number of seconds, nor a duration"),
    ],
)
def test_arguments_that_cannot_be_meant(arguments: list[str], code: int, message: str) -> None:
    done = CliRunner().invoke(load_command, arguments)
    assert (done.exit_code, message in done.output) == (code, True), done.output


def test_a_topic_that_has_no_schema_is_told_and_the_others_are_loaded(broker: Broker, tmp_path: Path) -> None:
    """Once it has a schema it is loaded; "hello" is no event of that schema, so it is a dead letter."""
    world = LoadWorld(broker, tmp_path)
    world.publish(10)
    text = broker.create_topic(f"{world.topic}-text", 1)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(text, "hello")
    jobs = jobs_of(world, tmp_path, topics=(), pattern=f"{world.topic}.*")
    told: list[LoadOutcome] = []
    service = LoadService(spark_session(), jobs, on_outcome=told.append)
    service.run_once()
    assert {each.job.topic: (each.rows, each.error is None) for each in told} == {world.topic: (9, True), text: (0, False)}
    service.run_once()
    assert len(told) == 2, "nothing is told twice"
    with RegistryClient(str(broker.registry_url)) as registry:
        registry.register(f"{text}-value", '{"type": "record", "name": "Text", "fields": [{"name": "a", "type": "int"}]}')
    service.run_once()
    assert [(each.job.topic, each.loads[0].dead_letters, each.error) for each in told[2:]] == [(text, 1, None)]


def test_missing_java_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = ["--to", str(tmp_path), "--name", "j", "--topics", "t", "--registry", "http://r"]
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = CliRunner().invoke(load_command, arguments)
    assert (done.exit_code, done.output) == (1, "Error: there is no Java at JAVA_HOME, /nowhere; Spark needs a Java 17 or newer\n")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(load_command, arguments)
    assert "there is no Java: neither JAVA_HOME is set nor is java in the PATH" in done.output
