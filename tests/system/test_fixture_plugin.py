"""The pytest plugin works in somebody else's test suite, costs nothing where it is not used, and cleans up behind itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

SUITE = """
from confluent_kafka import Producer
import pytest

SEEN = []

def test_a_message_goes_through(moldau, moldau_topic):
    producer = Producer({"bootstrap.servers": moldau.bootstrap_servers})
    producer.produce(moldau_topic, b"hello")
    assert producer.flush(30) == 0
    assert moldau.topics() == [moldau_topic]
    SEEN.append((moldau.bootstrap_servers, moldau_topic, str(moldau.directory)))

@pytest.mark.parametrize("case", ["x/y", "z z"])
def test_every_test_has_a_topic_of_its_own_on_the_same_broker(moldau, moldau_topic, case):
    assert moldau.topics() == [moldau_topic]
    assert moldau.bootstrap_servers == SEEN[0][0]
    assert moldau_topic not in [topic for _, topic, _ in SEEN]
    SEEN.append((moldau.bootstrap_servers, moldau_topic, str(moldau.directory)))

def test_a_test_may_delete_its_topic_itself(moldau, moldau_topic):
    moldau.delete_topic(moldau_topic)

def test_tell(moldau):
    print("DIRECTORY", moldau.directory)
"""


def run_pytest(directory: Path, *arguments: str) -> "subprocess.Popen[str]":
    """A fresh pytest, away from our own configuration and from plugins that happen to be installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:anyio",
        "--rootdir",
        str(directory),
        *arguments,
    ]
    return subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_suite_with_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    out, _ = run_pytest(tmp_path, "-q", "-s").communicate(timeout=120)
    assert "5 passed" in out, out
    directory = next(line.split()[-1] for line in out.splitlines() if "DIRECTORY" in line)
    assert not Path(directory).exists()


def test_the_settings_are_those_of_the_suite_and_a_registry_is_there_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef moldau_settings():\n    return {'auto.create.topics.enable': False}\n"
    )
    (tmp_path / "test_settings.py").write_text(
        "import json\nimport urllib.request\n\n"
        "from moldau.client.admin import Admin, AdminResource, AdminResourceType\n"
        "from moldau.client.cluster import Cluster\n\n"
        "def test_settings(moldau):\n"
        "    with Cluster(moldau.bootstrap_servers) as cluster:\n"
        "        entries = Admin(cluster).describe_configs(AdminResource(AdminResourceType.BROKER, '0'))\n"
        "    assert {entry.name: entry.value for entry in entries}['auto.create.topics.enable'] == 'false'\n\n"
        "def test_registry(moldau, moldau_registry_url):\n"
        "    assert moldau_registry_url == moldau.registry_url\n"
        "    with urllib.request.urlopen(moldau_registry_url + '/schemas/types') as answer:\n"
        "        assert json.load(answer) == ['JSON', 'PROTOBUF', 'AVRO']\n"
    )
    out, _ = run_pytest(tmp_path, "-q").communicate(timeout=60)
    assert "2 passed" in out, out


def test_runs_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    """As the workers of pytest-xdist: each process has its own broker."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    runs = [run_pytest(tmp_path, "-q", "-s") for _ in range(3)]
    outputs = [run.communicate(timeout=120)[0] for run in runs]
    assert all("5 passed" in out for out in outputs), outputs
    assert len({line.split()[-1] for out in outputs for line in out.splitlines() if "DIRECTORY" in line}) == 3


CLUSTER_SUITE = """
import pytest

@pytest.fixture(scope="session")
def moldau_cluster_settings():
    return {"num.partitions": 2}

SEEN = []

def test_a_test_may_break_the_cluster(moldau_cluster):
    topic = moldau_cluster.create_topic(moldau_cluster.unique_topic())
    moldau_cluster.partition(1, 2)
    moldau_cluster.kill(moldau_cluster.leader_of(topic))
    SEEN.append([topic, *map(moldau_cluster.pid, moldau_cluster.broker_ids)])

def test_it_is_mended_for_the_next_one(moldau_cluster):
    topic, *before = SEEN[0]
    assert moldau_cluster.in_sync(topic) == [1, 2, 3]
    now = [moldau_cluster.pid(each) for each in moldau_cluster.broker_ids]
    assert [one == other for one, other in zip(before, now)].count(True) == 2
    print("DIRECTORY", moldau_cluster.directory)
"""


def test_a_cluster_serves_all_tests_and_is_mended_after_each(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(CLUSTER_SUITE)
    out, _ = run_pytest(tmp_path, "-q", "-s").communicate(timeout=300)
    assert "2 passed" in out, out
    directory = next(line.split()[-1] for line in out.splitlines() if "DIRECTORY" in line)
    assert not Path(directory).exists()


def test_the_fixtures_are_listed_with_their_purpose(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    out, _ = run_pytest(tmp_path, "--fixtures").communicate(timeout=60)
    assert "moldau [session scope]" in out
    assert "moldau_topic" in out
    assert "moldau_settings [session scope]" in out
    assert "moldau_cluster -- " in out
    assert "A broker for the whole run" in out


def test_a_suite_without_them_pays_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_light.py").write_text(
        "import sys\n\ndef test_light():\n"
        "    assert 'moldau.testing.plugin' in sys.modules\n"
        "    heavy = ('moldau', 'asyncio', 'uvloop', 'sqlite3', 'fastcrc', 'click')\n"
        "    loaded = {name for name in sys.modules if name.split('.')[0] in heavy}\n"
        "    assert loaded == {'moldau', 'moldau.testing', 'moldau.testing.plugin'}\n"
    )
    out, _ = run_pytest(tmp_path, "-q").communicate(timeout=60)
    assert "1 passed" in out, out
