"""How fast Moldau starts: a server process, a command, a broker inside a test. Medians over fresh processes, JSON lines.

    python benchmarks/startup.py [--runs 9] [--out FILE]

* ``serve``: from exec of ``moldau serve`` on an empty directory to its first answer to ApiVersions; resident memory two seconds later.
* ``topic list``: wall time of the whole command against a server with 20 topics, interpreter start included.
* ``in-process``: importing `moldau.testing`, and ``with Broker()`` after the import, up to the first answer to ApiVersions; in a fresh
  process each time, and a second broker in the same process.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import Results, load_average, resident_mb, spread
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from startup_probe import wait_for_answer
from systems import free_port

TARGETS = {"first_answer_ms": 250, "idle_rss_mb": 45, "wall_ms": 400, "start_ms": 50}
IDLE_S = 2.0
PROBE = Path(__file__).with_name("startup_probe.py")


def serve_command(data: Path, port: int) -> list[str]:
    """The console script, as a user starts it."""
    return [str(Path(sys.executable).parent / "moldau"), "serve", "--listen", f"127.0.0.1:{port}", "--data", str(data)]


def measure_serve(runs: int) -> dict[str, list[float]]:
    """Fresh servers on fresh directories."""
    found: dict[str, list[float]] = {"first_answer_ms": [], "idle_rss_mb": []}
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder:
            port = free_port()
            begun = time.perf_counter()
            process = subprocess.Popen(serve_command(Path(folder) / "data", port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                wait_for_answer(port)
                found["first_answer_ms"].append(1000 * (time.perf_counter() - begun))
                time.sleep(IDLE_S)  # a server left alone
                found["idle_rss_mb"].append(resident_mb(process.pid))
            finally:
                process.terminate()
                process.wait(30)
    return found


def measure_topic_list(runs: int) -> dict[str, list[float]]:
    """The command, from exec to exit."""
    walls = []
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder:
        port = free_port()
        process = subprocess.Popen(serve_command(Path(folder) / "data", port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_answer(port)
            with Cluster(f"127.0.0.1:{port}") as cluster:
                for number in range(20):
                    Admin(cluster).create_topic(f"topic-{number}", partitions=3)
            command = [serve_command(Path(folder), port)[0], "topic", "list", "--bootstrap", f"127.0.0.1:{port}"]
            for _ in range(runs):
                begun = time.perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                walls.append(1000 * (time.perf_counter() - begun))
        finally:
            process.terminate()
            process.wait(30)
    return {"wall_ms": walls}


def measure_in_process(runs: int) -> dict[str, list[float]]:
    """A broker inside a process, as the pytest fixture starts it."""
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        done = subprocess.run([sys.executable, str(PROBE)], check=True, capture_output=True, text=True)
        measured: dict[str, float] = json.loads(done.stdout)
        for name, value in measured.items():
            found.setdefault(name, []).append(value)
    return found


def main() -> None:
    """All three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=Path, help="append the JSON lines to this file as well")
    given = parser.parse_args()
    results = Results(given.out)
    for what, measure in (("serve", measure_serve), ("topic list", measure_topic_list), ("in-process", measure_in_process)):
        load = load_average()
        for metric, values in measure(given.runs).items():
            line: dict[str, Any] = {name: round(value, 1) for name, value in spread(values).items()}
            if metric in TARGETS:
                line |= {"target": TARGETS[metric], "met": line["median"] <= TARGETS[metric]}
            results.write(benchmark="startup", what=what, metric=metric, runs=given.runs, load=load, **line)


if __name__ == "__main__":
    main()
