"""The demonstration of the topology: every tier of seven brokers, two mirrors and a load has every event, though a mirror and a broker are
killed half way, and each edge has its latency (missions F3, G1, J1).
"""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from moldau.demo.tiers import LAKE_TIER
from moldau.demo.topology import AGGREGATE, AGGREGATE_BROKERS, DATACENTERS, OFFLINE
from support.demo_events import BAD_LINES, LINES, STEP_MS, write_events

pytestmark = [pytest.mark.system, pytest.mark.spark]

RUN_LIMIT_S = 600
LOCALS = [("producer", name) for name in DATACENTERS]
EDGES = [*LOCALS, *((name, AGGREGATE) for name in DATACENTERS), (AGGREGATE, OFFLINE), (OFFLINE, LAKE_TIER)]


def run(directory: Path, events: Path) -> dict[str, Any]:
    given = ["--dir", str(directory), "--input", str(events), "--key", "who", "--time", "at", "--bad-lines", "dead-letter", "--json"]
    command = [sys.executable, "-m", "moldau.cli.main", "demo", *given, "--cores", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_every_tier_has_every_event_though_a_mirror_and_a_broker_are_killed(tmp_path: Path) -> None:
    """Events of 1970, whose latencies are those of the run: they begin at `track`."""
    report = run(tmp_path / "demo", write_events(tmp_path / "events.jsonl"))
    good = LINES - len(BAD_LINES)
    assert (report["read"], report["bad_lines"], report["dead_letters"], report["complete"]) == (LINES, 2, 2, True)
    assert (report["audit"]["verdict"], report["audit"]["faults"]) == ("complete", [])
    assert (report["proof"]["rows"], report["proof"]["checksum_is_the_audits"]) == (good, True)

    # both were killed half way, and came again
    crash = report["crash"]
    assert (crash["mirror"], crash["to_send"], crash["partitions"]) == ("mirror.aggregate", LINES, 6)
    assert crash["broker"] in range(1, AGGREGATE_BROKERS + 1)
    assert crash["sent"] >= LINES // 2
    assert crash["mirror_down_s"] > 0

    # each edge has all events, none lags, and says how long they took to its lower end; a window is complete where it ends
    edges = report["edges"]
    assert [(each["upper_tier"], each["lower_tier"]) for each in edges] == EDGES
    assert {(each["verdict"], each["lag"], each["more"]) for each in edges} == {("complete", 0, 0)}
    for each in edges:
        into_lower = [other["lower_count"] for other in edges if other["lower_tier"] == each["lower_tier"]]
        assert each["upper_count"] == each["lower_count"]
        latency = each["latency"]
        assert latency["count"] == sum(into_lower)
        assert latency["p50_ms"] <= latency["p95_ms"] <= latency["p99_ms"] < RUN_LIMIT_S * 1000
    tiers = (DATACENTERS, (AGGREGATE,), (OFFLINE,), (LAKE_TIER,))
    of_all = (sum(each["lower_count"] for each in edges if each["lower_tier"] in lower) for lower in tiers)
    assert list(of_all) == [good] * 4
    marks = {each["lower_tier"]: each["completion_watermark_ms"] for each in report["audit"]["topics"]}
    assert marks[LAKE_TIER] == LINES * STEP_MS // 600_000 * 600_000 + 600_000

    # and the picture has the tree, with the quantiles of each tier below the producers
    root = ET.parse(report["picture"]).getroot()
    groups = {each.attrib["aria-label"]: [text.text or "" for text in each.findall("{*}text")] for each in root.findall("{*}g")}
    assert {f"{upper} > {lower}" for upper, lower in EDGES} <= groups.keys()
    assert all(
        groups[tier][2] == "complete" and groups[tier][3].startswith("p50 ") for tier in (*DATACENTERS, AGGREGATE, OFFLINE, LAKE_TIER)
    )
