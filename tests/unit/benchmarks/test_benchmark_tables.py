"""What `make bench` prints at its end: each figure beside the rival's of the same run and its target, judged rightly."""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from ratios import summaries, tables
from row import Row, short
from run import SECTIONS, sections
from spark_rows import CONNECTOR, FLOOR
from spark_turns import WARM_UPS, in_turn

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def figure(median: float) -> dict[str, float]:
    return {"median": median, "min": median / 2, "max": median * 2}


def printed(folder: Path, *lines: dict[str, Any]) -> list[list[str]]:
    """The cells of the rows, as they come out of a file of lines."""
    file = folder / "bench.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables(summaries([file])).splitlines()]


@pytest.mark.parametrize(
    ("ours", "theirs", "bound", "least", "verdict"),
    [
        (90.0, 100.0, 0.9, True, "met"),
        (89.0, 100.0, 0.9, True, "falls short"),
        (80.0, 100.0, 0.8, False, "met"),
        (81.0, 100.0, 0.8, False, "falls short"),
        (60_000.0, None, 60_000.0, True, "met"),
        (1_001.0, None, 1_000.0, False, "falls short"),
        (1.0, 2.0, None, True, ""),
    ],
)
def test_a_target_is_one_of_the_ratio_or_of_the_figure_where_there_is_no_rival(
    ours: float, theirs: float | None, bound: float | None, least: bool, verdict: str
) -> None:
    assert Row("cell", ours, theirs, bound, least).verdict == verdict


def test_figures_have_four_digits_that_count_and_no_powers_of_ten() -> None:
    assert [short(each) for each in (2_595_432.0, 12_348.0, 0.149_72, 7.0)] == ["2,595,000", "12,350", "0.1497", "7"]


def test_a_command_stands_beside_kcat_of_the_same_format(tmp_path: Path) -> None:
    cell = {"test": "consume-cli", "summary": True, "codec": "none", "records": 2_400_000}
    rows = printed(
        tmp_path,
        {**cell, "system": "moldau", "format": "values", "seconds": figure(3.0)},
        {**cell, "system": "kcat", "format": "values", "seconds": figure(2.0)},
        {**cell, "system": "moldau", "format": "json", "seconds": figure(3.0)},
    )
    assert rows[2:] == [["consume 2,400,000 records, values, batches: none, s", "3", "2", "1.5 ×", "≤ 2 ×", "met"]]


def test_a_large_load_stands_beside_the_connectors_job_and_a_small_one_alone(tmp_path: Path) -> None:
    large = {"test": "load large", "summary": True, "events": 3_000_000}
    rows = printed(
        tmp_path,
        {**large, "system": "moldau", "seconds": figure(15.0), "rate": figure(200_000)},
        {**large, "system": CONNECTOR, "seconds": figure(30.0), "rate": figure(100_000)},
        {"system": "moldau", "test": "load small", "summary": True, "events": 3_000, "seconds": figure(7.0), "rate": figure(428)},
    )
    assert ["load of 3,000,000 events, whole process: rows/s", "200,000", "100,000", "2 ×", "≥ 2 ×", "met"] in rows
    assert ["load of 3,000 events, whole process: s", "7", "≤ 12", "met"] in rows


def test_spark_stands_beside_the_connector_of_the_same_run_and_only_with_it(tmp_path: Path) -> None:
    rows = printed(
        tmp_path,
        {"system": "moldau", "test": "spark read count", "summary": True, "rate": figure(1_200_000)},
        {"system": CONNECTOR, "test": "spark read count", "summary": True, "rate": figure(600_000)},
        {"system": "moldau", "test": "spark read micro", "summary": True, "ms": figure(190.0)},
        {"system": CONNECTOR, "test": "spark read micro", "summary": True, "ms": figure(80.0)},
        {"system": FLOOR, "test": "spark read micro", "summary": True, "ms": figure(100.0)},
        {"system": "moldau", "test": "spark read parquet", "summary": True, "rate": figure(800_000)},  # without a rival: nothing to say
        {"system": "moldau", "test": "spark write plain", "summary": True, "rate": figure(1_000_000)},
        {"system": "moldau transactional", "test": "spark write plain", "summary": True, "rate": figure(800_000)},
        {"system": CONNECTOR, "test": "spark write plain", "summary": True, "rate": figure(500_000)},
    )
    assert rows[2:] == [
        ["source, batch, count: rows/s", "1,200,000", "600,000", "2 ×", "≥ 1 ×", "met"],
        ["source, micro-batch of 20 records: ms", "190", "80", "2.38 ×", "≤ 1 ×", "falls short"],
        ["source, micro-batch of 20 records, rows of nothing: ms", "100", "80", "1.25 ×", "", ""],
        ["sink, values, at least once: rows/s", "1,000,000", "500,000", "2 ×", "", ""],
        ["sink, values, transactional: rows/s", "800,000", "500,000", "1.6 ×", "", ""],
    ]


def test_registry_tracking_and_audit_stand_beside_their_targets(tmp_path: Path) -> None:
    rows = printed(
        tmp_path,
        {"system": "moldau", "test": "registry", "run": 0, "ready_ms": 300.0},  # one run is no summary
        {"system": "moldau", "test": "registry", "summary": True, "schemas": 2000, "ready_ms": figure(310), "server_cpu_us": figure(1200)},
        {"system": "moldau", "test": "tracking-track", "summary": True, "rate": figure(77_500), "cpu_us": figure(12.8)},
        {"system": "moldau", "test": "audit", "what": "lz4", "way": "pure Python", "summary": True, "events_per_s": figure(190_000)},
        {"system": "moldau", "test": "audit", "what": "lz4", "way": "numpy", "summary": True, "events_per_s": figure(1_200_000)},
    )
    assert [row[1:] for row in rows[2:]] == [
        ["310", "≤ 1,000", "met"],
        ["1,200", "≤ 1,000", "falls short"],
        ["77,500", "≥ 60,000", "met"],
        ["190,000", "≥ 200,000", "falls short"],
        ["1,200,000", "≥ 400,000", "met"],
    ]
    assert rows[2][0] == "registry of 2,000 schemas: from exec to the first look-up, ms"


def test_the_broker_stands_beside_kafka(tmp_path: Path) -> None:
    same = {"test": "consume", "batch": "50", "fetch": "default", "summary": True, "cpu_s_per_million": figure(0.1)}
    rows = printed(
        tmp_path, {"system": "moldau", "rate": figure(2_000_000), **same}, {"system": "kafka 4.3.0", "rate": figure(1_600_000), **same}
    )
    assert rows[2] == ["consume, log of batch 50, fetch default: messages/s", "2,000,000", "1,600,000", "1.25 ×", "≥ 1 ×", "met"]
    assert len(rows) == 4


def test_changelogs_and_merges_stand_beside_their_targets(tmp_path: Path) -> None:
    rows = printed(
        tmp_path,
        {
            "system": "moldau", "test": "changelog-postgres-stream", "summary": True, "rate": figure(25_283),
            "publisher_cpu_us": figure(28.2), "replica_cpu_us": figure(46.0),
        },
        {"system": "moldau", "test": "changelog-memory-sqlite", "summary": True, "changes": 1_000_000, "replica_mb": figure(90.0)},
        {"system": "moldau", "test": "make log", "summary": True, "rows": 2_000_000, "rows_per_s": figure(400_000)},
    )  # fmt: skip
    assert rows[2:] == [
        ["PostgreSQL into a replica in SQLite: changes/s", "25,280", "≥ 20,000", "met"],
        ["of that, the publisher: processor time of a change, µs", "28.2", "≤ 45", "met"],
        ["of that, the replica: processor time of a change, µs", "46", "≤ 45", "falls short"],
        ["the same: replica in SQLite, MB", "90", "≤ 256", "met"],
        ["a merged table made of 2,000,000 rows, whole process: rows/s", "400,000", "", ""],
    ]


def test_every_section_is_a_command_that_takes_the_options_it_is_given() -> None:
    for name, (program, *options) in SECTIONS.items():
        text = (BENCHMARKS / program).read_text()
        for option in re.findall(r"--\w+", " ".join(options)):
            shared = (BENCHMARKS / "harness.py").read_text() if "from harness" in text else ""
            assert f'"{option}"' in text + shared, f"{name}: {option}"


def test_sections_can_be_run_alone_and_a_wrong_name_is_told() -> None:
    assert sections("registry,auditor") == ["registry", "auditor"]
    with pytest.raises(argparse.ArgumentTypeError, match=r"no such section: registri; there are codec, .*, spark_write"):
        sections("registry,registri")


def test_rivals_take_turns_another_one_first_in_each_round_and_warm_ups_do_not_count() -> None:
    order: list[str] = []

    def work(name: str) -> int:
        order.append(name)
        return len(order)

    results = in_turn(["a", "b"], work, 3)
    assert order == ["a", "b", "b", "a"] * ((WARM_UPS + 3) // 2) + ["a", "b"] * ((WARM_UPS + 3) % 2)
    assert [len(each) for each in results] == [3, 3]
    assert min(map(min, results)) > 2 * WARM_UPS


def test_a_stream_job_stands_beside_the_connectors_query(tmp_path: Path) -> None:
    """Rates, the latency of batches, memory of state and restarts have targets; processor time stands beside."""
    rate = {"test": "stream counts", "summary": True}
    lines: list[dict[str, Any]] = []
    for system, factor in (("moldau", 1.5), (CONNECTOR, 1.0)):
        lines += [
            {**rate, "system": system, "rate": figure(100_000 * factor), "cpu": figure(10 / factor)},
            {"test": "stream latency", "summary": True, "system": system, "ms": figure(400 * factor)},
            {"test": "stream state", "summary": True, "system": system, "keys": 1_000_000, "mb": 1000},
            {"test": "stream restart", "summary": True, "system": system, "seconds": figure(8 / factor), "cpu": figure(10)},
        ]
    assert [row[-3:] for row in printed(tmp_path, *lines)[2:]] == [
        ["1.5 ×", "≥ 1.2 ×", "met"],
        ["0.667 ×", "", ""],
        ["1.5 ×", "≤ 0.9 ×", "falls short"],
        ["1 ×", "≤ 1 ×", "met"],
        ["0.667 ×", "≤ 1 ×", "met"],
        ["1 ×", "", ""],
    ]
