"""Timing of a small function, in the manner of `timeit`: batches long enough for the clock, the median over them."""

import statistics
import time
from collections.abc import Callable
from typing import Any

BATCH_SECONDS = 0.02
BATCHES = 25


def per_call_us(function: Callable[[], object]) -> dict[str, float]:
    """Median, least and greatest microseconds of one call, over batches of about 20 ms each."""
    calls = 1
    while (elapsed := _batch_seconds(function, calls)) < BATCH_SECONDS:
        calls = max(calls + 1, min(calls * 10, int(calls * BATCH_SECONDS / max(elapsed, 1e-9))))
    times = [_batch_seconds(function, calls) / calls * 1e6 for _ in range(BATCHES)]
    return {"median": round(statistics.median(times), 3), "min": round(min(times), 3), "max": round(max(times), 3)}


def row(name: str, function: Callable[[], object], *, target_us: float | None = None, **facts: Any) -> dict[str, Any]:
    """One line of results: microseconds per call, and whether the median meets the target if there is one."""
    measured = per_call_us(function)
    verdict = {} if target_us is None else {"target": target_us, "met": measured["median"] <= target_us}
    return {"benchmark": name, "unit": "us", **measured, **verdict, **facts}


def _batch_seconds(function: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return time.perf_counter() - start
