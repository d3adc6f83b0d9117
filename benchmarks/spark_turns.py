"""What the benchmarks beside Spark's own Kafka connector share: a session with both, and runs in turn."""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from moldau.lake.session import start_spark
from support.spark import connector_jars

Each = TypeVar("Each")
Result = TypeVar("Result")
MEMORY = "2g"
WARM_UPS = 2
"""Rounds that do not count: Java's compiler goes on behind the first."""


def bench_session() -> Any:
    """Spark on two cores as a user starts it, all of Java's compilers at work; ends with the process."""
    directory = tempfile.mkdtemp(prefix="moldau-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    jars = connector_jars()
    settings = {"spark.jars": ",".join(map(str, sorted(jars.glob("*.jar"))))} if jars else {}
    return start_spark("bench", directory, memory=MEMORY, settings=settings)


def in_turn(those: Sequence[Each], work: Callable[[Each], Result], runs: int, *, warm_ups: int = WARM_UPS) -> list[list[Result]]:
    """What `work` gives for each of those in each run, behind the warm-ups. Another one begins each round."""
    results: list[list[Result]] = [[] for _ in those]
    for round_ in range(warm_ups + runs):
        for place in range(len(those)):
            which = (round_ + place) % len(those)
            result = work(those[which])
            if round_ >= warm_ups:
                results[which].append(result)
    return results
