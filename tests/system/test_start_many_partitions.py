"""After a clean stop, 1,000 partitions of 3 segments are open within 2 s and within 100 MB (mission A6, A8).

The bound is the real one, not a share of it: a quiet machine needs about a seventh of both.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.alone]

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "start_many_partitions.py"


def test_a_thousand_partitions_open_in_two_seconds_and_a_hundred_megabytes() -> None:
    done = subprocess.run([sys.executable, str(BENCHMARK), "--runs", "3"], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["partitions"] == 1000
    assert found["segments"] == 3000
    assert found["start_s_min"] <= 2.0, found
    assert found["peak_mb"] <= 100, found
