"""All benchmarks, one after another: `make bench`. JSON lines go to out/bench.jsonl, the table of ratios to the screen.

    python benchmarks/run.py [--scale 1.0] [--runs 3]

Takes about a quarter of an hour at full scale. Every part is a command of its own beside this file.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "out" / "bench.jsonl"


def main() -> None:
    """Run the parts; stop at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    OUT.parent.mkdir(exist_ok=True)
    OUT.unlink(missing_ok=True)
    shared = ["--runs", str(given.runs), "--out", str(OUT)]
    sized = ["--scale", str(given.scale), *shared]
    for part in (
        ["codec/run.py"],
        ["startup.py"],
        ["start_many_partitions.py"],
        ["first_ack.py", *shared],
        ["throughput.py", *sized],
        ["latency.py", *sized],
        ["transactions.py", *sized],
        ["groups.py", *shared],
        ["heartbeats.py", *shared],
        ["compaction.py", *sized],
    ):
        print(f"# {part[0]}", flush=True)
        subprocess.run([sys.executable, str(HERE / part[0]), *part[1:]], check=True)
    subprocess.run([sys.executable, str(HERE / "ratios.py"), str(OUT)], check=True)


if __name__ == "__main__":
    main()
