"""Services that are killed in the middle: no false duplication, no false loss, and the host is named (mission H1)."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moldau.testing import Broker
from support.audit_faults import AT_ONCE_S, NEVER_S, TIER, audit_once, report
from support.audit_killed_producer import TOPIC

pytestmark = pytest.mark.system

LIMIT_S = 60.0


def service(broker: Broker, host: str, count: int) -> "subprocess.Popen[str]":
    tests = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "support.audit_killed_producer", broker.bootstrap_servers, host, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(tests)})


def test_killed_services_are_incomplete_and_then_counted_from_the_log() -> None:
    """Two are killed at random moments, one ends in order: only the killed ones may be incomplete, and in the end all is complete."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with Broker() as broker:
        broker.create_topic(TOPIC, partitions=2)
        for host in ("killed-1", "killed-2"):
            process = service(broker, host, 0)
            assert process.stdout is not None
            assert process.stdout.readline() == "in the log\n"
            time.sleep(chance.uniform(0.0, 0.3))
            process.kill()
            assert process.wait(LIMIT_S) == -signal.SIGKILL
            process.stdout.close()
        orderly = service(broker, "orderly", 1_000)
        assert orderly.communicate(timeout=LIMIT_S)[0] == "in the log\n"
        assert orderly.returncode == 0
        audit_once(broker)

        rules = ("--tiers", f"producer,{TIER}", "--grace", "0")
        code, told = report(broker, *rules, "--producer-timeout", str(NEVER_S))
        assert (code, told["verdict"]) in [(3, "producer counts incomplete"), (0, "complete")], told
        noted = [source for window in told["windows"] for source in window["sources"]]
        assert {source["host"] for source in noted} <= {"killed-1", "killed-2"}
        assert all("silent since" in source["note"] for source in noted)

        code, told = report(broker, *rules, "--producer-timeout", str(AT_ONCE_S), "--complete")
        assert (code, told["verdict"], told["complete"]) == (0, "complete", True)
        (topic,) = told["topics"]
        assert topic["lower"]["count"] >= topic["upper"]["count"] >= 1_000
        assert topic["completion_watermark_ms"] is not None
