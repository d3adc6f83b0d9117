"""A start loads nothing of what only some brokers and commands need, and pays for none of it: neither time nor memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

PROGRAM = """
import json, sys
from moldau.assembly.thread import BrokerThread
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
thread = BrokerThread(BrokerConfig(read_static(settings=["listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + sys.argv[1]])))
thread.start()
print(json.dumps(list(sys.modules)))
thread.stop()
"""
SERVER = """
import os, signal, sys
from moldau.assembly.process import serve
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig

def listening(_addresses):
    print([name for name in ("ctypes", "pathlib", "tempfile") if name in sys.modules], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

serve(BrokerConfig(read_static(settings=["listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + sys.argv[1]])), on_listening=listening)
"""
COMMANDS = """
import sys
import moldau.cli.application, moldau.cli.serve, moldau.assembly.process
print([name for name in ("dataclasses", "pathlib", "unicodedata", "moldau.cli.terminal_table") if name in sys.modules])
import moldau.cli.topic, moldau.client.admin, moldau.client.cluster
messages = "moldau.protocol.messages."
print([name for name in sys.modules if name.startswith(messages) and name != messages + "metadata"])
"""
UNWANTED = (
    "kazoo",
    "moldau.adapters.zookeeper",
    "moldau.assembly.zookeeper",
    "moldau.model.zookeeper_connect",
    "moldau.broker.coordinators",
    "moldau.broker.groups",
    "moldau.adapters.metrics_server",
    "moldau.broker.local_coordinators",
    "moldau.broker.collector",
    "moldau.adapters.asyncio_network",
    "moldau.broker.metadata.admin",
    "moldau.broker.metadata.channels",
    "moldau.broker.metadata.config_applier",
    "moldau.broker.metadata.control_messages",
    "moldau.broker.metadata.forwarding",
    "moldau.broker.peers",
    "moldau.broker.transactions",
    "moldau.client",
    "moldau.cluster.controller.planning",
    "moldau.cluster.controller.cluster_changes",
    "moldau.cluster.controller.configs",
    "moldau.cluster.controller.deletions",
    "moldau.cluster.controller.planning",
    "moldau.cluster.controller.requests",
    "moldau.cluster.controller.topics",
    "moldau.log.closing",
    "moldau.log.recovery",
    "moldau.log.timestamps",
    "moldau.registry",
    "dataclasses",  # generating the classes of a start took 10 ms
    "encodings.idna",  # tables of international names: 3 ms and 400 KB
    "pathlib",
    "prometheus_client",
    "re2",
)
WITHOUT_REGISTRY = """
import sys
import moldau.assembly.process, moldau.cli.serve, moldau.testing, moldau.testing.plugin
print([name for name in sys.modules if name.startswith(("moldau.registry", "uvicorn", "fastavro"))])
"""


def test_a_broker_without_groups_transactions_and_damage_loads_nothing_of_them(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, capture_output=True, text=True, timeout=60)
    loaded = json.loads(done.stdout)
    assert "moldau.broker.broker" in loaded
    assert [name for name in loaded if name.startswith(UNWANTED)] == []


def test_who_asks_for_no_schema_registry_loads_nothing_of_it() -> None:
    """Neither `moldau serve` nor a test's broker: the registry and its HTTP server come with `--registry`, with `registry=True`."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_REGISTRY], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_server_and_a_list_of_topics_load_no_layout_of_tables_and_no_other_requests() -> None:
    done = subprocess.run([sys.executable, "-c", COMMANDS], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["[]", "[]", ""]


def test_a_server_that_needs_no_thread_yet_does_not_load_what_reaches_the_c_library(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SERVER, str(tmp_path)], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"
