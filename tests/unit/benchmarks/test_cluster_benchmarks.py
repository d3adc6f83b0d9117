"""The benchmarks of clusters: what they print beside Apache Kafka, and what they make of a producer's acknowledgements."""

import argparse
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import cluster_failover
import cluster_rates
import cluster_start
from cluster_rows import FIGURES, PREFIX
from cluster_systems import KAFKA, METADATA_TOPIC, MOLDAU, MOLDAU_ZOOKEEPER, names_of, quorum_leader
from ratios import summaries, tables
from steady_stream import Outcome, longest_gap, outcome

KILL = "cluster: kill -9 of a leader"


def figure(median: float) -> dict[str, float]:
    return {"median": median, "min": median / 2, "max": median * 2}


def line(system: str, test: str, **figures: Any) -> dict[str, Any]:
    return {"system": system, "test": test, "summary": True, **figures}


def killed(system: str, seconds: float, *, lost: int = 0) -> dict[str, Any]:
    times = {"leader_s": figure(seconds), "ack_s": figure(seconds), "rejoin_s": figure(seconds)}
    return line(system, KILL, **times, lost=lost, doubled=0)


def printed(folder: Path, *lines: dict[str, Any]) -> list[list[str]]:
    file = folder / "bench.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in tables(summaries([file])).splitlines()][2:]


def test_a_figure_of_a_cluster_stands_beside_kafkas_with_a_target_of_their_ratio_or_of_itself(tmp_path: Path) -> None:
    rates = {"test": "cluster: produce, batches of 50"}
    rows = printed(
        tmp_path,
        line(MOLDAU, **rates, rate=figure(400_000), cpu_s_per_million=figure(3.0)),
        line(KAFKA, **rates, rate=figure(50_000), cpu_s_per_million=figure(15.0)),
        line(MOLDAU, "cluster: acknowledgement at 1,000/s", p50_us=figure(900), p99_us=figure(12_000)),
        line(KAFKA, "cluster: acknowledgement at 1,000/s", p50_us=figure(1_800), p99_us=figure(120_000)),
    )
    assert rows == [
        ["produce, batches of 50: messages/s", "400,000", "50,000", "8 ×", "≥ 5 ×", "met"],
        ["produce, batches of 50: CPU s per million", "3", "15", "0.2 ×", "≤ 0.15 ×", "falls short"],
        ["acknowledgement at 1,000/s: p50 µs", "900", "1,800", "0.5 ×", "", ""],
        ["acknowledgement at 1,000/s: p99 µs", "12,000", "120,000", "0.1 ×", "≤ 10,000", "falls short"],
    ]


def test_each_of_our_clusters_stands_beside_the_same_rival_and_none_without_it(tmp_path: Path) -> None:
    assert printed(tmp_path, killed(MOLDAU, 0.4), killed(MOLDAU_ZOOKEEPER, 0.4)) == []
    rows = printed(tmp_path, killed(MOLDAU, 0.4), killed(MOLDAU_ZOOKEEPER, 0.6), killed(KAFKA, 8.0))
    assert rows[0] == ["kill -9 of a leader: another leader named, s", "0.4", "8", "0.05 ×", "≤ 0.5", "met"]
    assert rows[3] == ["kill -9 of a leader: another leader named, s (moldau, ZooKeeper)", "0.6", "8", "0.075 ×", "≤ 0.5", "falls short"]


def test_what_is_lost_is_counted_over_all_faults_and_none_may_be(tmp_path: Path) -> None:
    stopped: dict[str, Any] = {"test": "cluster: SIGSTOP of a leader", "leader_s": figure(1.0), "ack_s": figure(1.0), "doubled": 0}
    rows = printed(
        tmp_path, killed(MOLDAU, 0.4, lost=1), killed(KAFKA, 8.0), line(MOLDAU, **stopped, lost=2), line(KAFKA, **stopped, lost=0)
    )
    assert rows[-2:] == [
        ["all faults: acknowledged messages lost", "3", "0", "", "≤ 0", "falls short"],
        ["all faults: messages there twice", "0", "0", "", "≤ 0", "met"],
    ]


def test_every_test_of_a_cluster_has_rows_with_figures_that_it_summarises() -> None:
    summarised = {
        **dict.fromkeys(cluster_rates.PRODUCE_TESTS.values(), cluster_rates.RATE),
        cluster_rates.CONSUME_TEST: cluster_rates.RATE,
        **dict.fromkeys(cluster_rates.PACE_TESTS.values(), cluster_rates.PACE),
        cluster_rates.MEMORY_TEST: ("rss_mb", "peak_mb"),
        cluster_start.TEST: cluster_start.FIGURES,
        **{fault.test: cluster_failover.FAULT_TIMES for fault in cluster_failover.FAULTS.values()},
        cluster_failover.ELECTION_TEST: cluster_failover.ELECTION_TIMES,
    }
    assert [PREFIX + test for test in sorted(FIGURES)] == sorted(summarised)
    for test, figures in FIGURES.items():
        assert [each.name for each in figures if each.name not in summarised[PREFIX + test]] == [], test


def test_times_are_spread_over_runs_and_counts_are_added_up() -> None:
    runs = [{"leader_s": 0.4, "lost": 1, "victim": 2}, {"leader_s": 0.2, "lost": 2, "victim": 3}]
    figures = cluster_failover.summary_of(runs, ["leader_s"])
    assert figures == {"leader_s": {"median": pytest.approx(0.3), "min": 0.2, "max": 0.4}, "lost": 3}


def test_the_longest_gap_is_the_one_that_ends_after_the_fault_though_it_began_before() -> None:
    acknowledged = [0.0, 5.0, 5.1, 6.4, 6.5]
    assert longest_gap(acknowledged, since=5.2).ended == 6.4
    assert longest_gap(acknowledged, since=5.2).seconds == pytest.approx(1.3)
    assert longest_gap(acknowledged, since=6.5) == (0.0, 6.5)
    assert longest_gap([], since=1.0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([0, 1, 2, 3], Outcome(lost=0, doubled=0, reordered=0, failed=1)),
        ([0, 2], Outcome(lost=1, doubled=0, reordered=0, failed=1)),
        ([0, 1, 1, 2], Outcome(lost=0, doubled=1, reordered=0, failed=1)),
        ([1, 0, 2], Outcome(lost=0, doubled=0, reordered=1, failed=1)),
    ],
)
def test_what_was_acknowledged_and_is_missing_is_lost_and_what_was_not_acknowledged_may_be_there(
    found: list[int], expected: Outcome
) -> None:
    assert outcome([0, 1, 2], found, failed=1) == expected


def quorum_answer(*, failed: int = 0, error: int = 0, leader: int = 2) -> bytes:
    """DescribeQuorum v0 as it is answered: correlation id, tags, error; the topic; the partition with its error, leader and epoch."""
    topic = bytes([2, len(METADATA_TOPIC) + 1]) + METADATA_TOPIC
    return struct.pack(">ibh", 1, 0, failed) + topic + struct.pack(">bihii", 2, 0, error, leader, 7)


def test_kafkas_active_controller_is_the_leader_of_its_quorum() -> None:
    assert quorum_leader(quorum_answer()) == 2
    assert quorum_leader(quorum_answer(failed=41)) is None
    assert quorum_leader(quorum_answer(error=6)) is None
    assert quorum_leader(quorum_answer(leader=-1)) is None


def test_systems_and_faults_can_be_chosen_and_a_wrong_name_is_refused() -> None:
    assert names_of("moldau,kafka") == ["moldau", "kafka"]
    assert cluster_failover.faults_of("term,election") == ["term", "election"]
    with pytest.raises(argparse.ArgumentTypeError, match="no such system: redpanda; there are moldau, zookeeper, kafka"):
        names_of("kafka,redpanda")
    with pytest.raises(argparse.ArgumentTypeError, match=r"no such fault: fire; there are kill, .*, election"):
        cluster_failover.faults_of("fire")
