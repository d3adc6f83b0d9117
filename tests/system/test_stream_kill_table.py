"""Whatever of a job is killed, topic and table have in the end what a plain query over all input gives: nothing missing, nothing doubled.

Windows, a join, rows without repetitions and sessions, each into a topic and a table, while events come. 25 kills of each:
the driver at each named point and at random moments, Python workers of tasks, the broker. At three of these points a driver dies in
test_stream_killed.py in every run.
"""

import random
from pathlib import Path

import pytest

from moldau.streams.points import POINTS
from support.job_killer import BROKER, DRIVER, WORKER, JobUnderFire, Outcome
from support.killed_jobs import JOBS
from support.server import ServerProcess

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.torture]

STARTS = 4
"""Of the driver, each of which ends at a random moment after two workers and a broker were killed, or two of them."""


def kill_all(job: JobUnderFire) -> None:
    """25 kills, among starts at named points and others."""
    starts = [*POINTS]
    for number in range(STARTS):
        for point in starts[number::STARTS]:
            job.kill_driver_at(point)
        others = [job.kill_worker, job.kill_worker, job.kill_broker, *([job.kill_broker] if number else [])]
        random.Random(number).shuffle(others)
        for kill in others:
            kill()
        job.kill_driver()


@pytest.mark.long
def test_kill_table(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"\nseed {seed}")
    draw, lines, total = random.Random(seed), [], 0
    with ServerProcess(tmp_path / "broker") as server:
        for name in JOBS:
            job = JobUnderFire(name, server, tmp_path / name, draw)
            try:
                kill_all(job)
                outcomes = job.finish()
            finally:
                job.close()
            total += job.kills.by_kind.total()
            lines.append(line(job, outcomes))
            print(lines[-1], flush=True)
            assert [(each.missing, each.doubled) for each in outcomes] == [(0, 0), (0, 0)], f"{name}, seed {seed}"
            assert min(each.rows for each in outcomes) > 0
    heads = ("job", "driver, at points", "driver, random", "task worker", "broker", "in a batch", "ended", "topic", "table", "wrong")
    print(f"| {' | '.join(heads)} |", *lines, f"{total} kills", sep="\n")
    assert total == 100


def line(job: JobUnderFire, outcomes: tuple[Outcome, Outcome]) -> str:
    """A row of the table."""
    kills = job.kills
    at_random = kills.by_kind[f"{DRIVER}, random moment"]
    at_points = sum(count for kind, count in kills.by_kind.items() if kind.startswith(DRIVER)) - at_random
    wrong = sum(each.missing + each.doubled for each in outcomes)
    counts = at_points, at_random, kills.by_kind[WORKER], kills.by_kind[BROKER], kills.in_batch, kills.ended.total()
    return f"| {job.name} | {' | '.join(map(str, (*counts, outcomes[0].rows, outcomes[1].rows, wrong)))} |"
