"""Seconds until three brokers that have nothing yet acknowledge a message, and their memory when idle, Moldau and Apache Kafka in turn.

    python benchmarks/cluster_start.py [--runs 3] [--systems moldau,zookeeper,kafka] [--out FILE]

Fresh folders each time; Kafka's are formatted before the clock starts. The message goes to a new topic of three replicas with acks all, as
soon as the cluster takes it. Memory is that of the three brokers ten seconds later.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cluster_systems import BROKERS, NAMES, START_LIMIT_S, cluster_system, names_of
from first_ack import IDLE_S, acknowledged
from harness import in_turn
from measure import Results, load_average, spread

TEST, FIGURES = "cluster: start", ("first_ack_s", "idle_rss_mb")


def measure_once(name: str) -> tuple[str, dict[str, float]]:
    """One start: the system's name in lines, and the figures."""
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder:
        system = cluster_system(name, Path(folder) / name)
        load, begun = load_average(), time.monotonic()
        system.launch()
        try:
            while not acknowledged(system.bootstrap, len(BROKERS)):
                if time.monotonic() - begun > START_LIMIT_S:
                    raise SystemExit(f"{system.name}: no acknowledgement")
            first_ack = time.monotonic() - begun
            time.sleep(IDLE_S)  # what is measured is a cluster left alone for so long
            return system.name, {"first_ack_s": round(first_ack, 3), "idle_rss_mb": system.resident_mb(), "load": load}
        finally:
            system.stop()


def main() -> None:
    """All systems in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--systems", type=names_of, default=[*NAMES], metavar="SYSTEM,...")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    rows: dict[str, list[dict[str, float]]] = {}
    for run in range(given.runs):
        for name in in_turn(given.systems, run):
            system, result = measure_once(name)
            rows.setdefault(system, []).append(result)
            results.write(system=system, test=TEST, run=run, **result)
    for system, runs in rows.items():
        summary = {key: spread([run[key] for run in runs]) for key in FIGURES}
        results.write(system=system, test=TEST, summary=True, **summary)


if __name__ == "__main__":
    main()
