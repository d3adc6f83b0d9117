"""A broker that has no groups and no transactions loads nothing of what serves them: its start pays for none of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
from moldau.assembly.thread import BrokerThread
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
thread = BrokerThread(BrokerConfig(read_static(settings=["listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + sys.argv[1]])))
thread.start()
print(json.dumps([name for name in sys.modules if name.startswith("moldau.")]))
thread.stop()
"""
UNWANTED = (
    "moldau.broker.coordinating",
    "moldau.broker.groups",
    "moldau.broker.markers",
    "moldau.broker.state_topic",
    "moldau.broker.transactions",
    "moldau.registry",
)
WITHOUT_REGISTRY = """
import sys
import moldau.assembly.process, moldau.cli.serve, moldau.testing, moldau.testing.plugin
print([name for name in sys.modules if name.startswith(("moldau.registry", "uvicorn", "fastavro"))])
"""


@pytest.mark.system
def test_a_broker_without_groups_and_transactions_loads_nothing_of_them(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, capture_output=True, text=True, timeout=60)
    loaded = json.loads(done.stdout)
    assert "moldau.broker.broker" in loaded
    assert [name for name in loaded if name.startswith(UNWANTED)] == []


@pytest.mark.system
def test_who_asks_for_no_schema_registry_loads_nothing_of_it() -> None:
    """Neither `moldau serve` nor a test's broker: the registry and its HTTP server come with `--registry`, with `registry=True`."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_REGISTRY], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
