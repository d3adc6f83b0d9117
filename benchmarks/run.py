"""All benchmarks, one after another: `make bench`. JSON lines go to out/bench.jsonl, the tables of ratios to the screen.

    python benchmarks/run.py [--scale 1.0] [--runs 3] [--only registry,tracking,...]

Every section is a command of its own beside this file. With --only the lines go to a file named after the sections, so that those of a
whole run stay.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from measure import Withheld

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "out"
RUNS, SCALE, FILE = ["--runs", "{runs}"], ["--scale", "{scale}"], ["--out", "{out}"]
SECTIONS: dict[str, list[str]] = {
    "codec": ["codec/run.py"],
    "startup": ["startup.py"],
    "start_many_partitions": ["start_many_partitions.py"],
    "first_ack": ["first_ack.py", *RUNS, *FILE],
    "throughput": ["throughput.py", *SCALE, *RUNS, *FILE],
    "latency": ["latency.py", *SCALE, *RUNS, *FILE],
    "transactions": ["transactions.py", *SCALE, *RUNS, *FILE],
    "changelog": ["changelog.py", *SCALE, *RUNS, *FILE],
    "changelog_postgres": ["changelog_postgres.py", *SCALE, *RUNS, *FILE],
    "changelog_memory": ["changelog_memory.py", *SCALE, *FILE],
    "groups": ["groups.py", *RUNS, *FILE],
    "heartbeats": ["heartbeats.py", *RUNS, *FILE],
    "cluster_start": ["cluster_start.py", *RUNS, *FILE],
    "cluster_rates": ["cluster_rates.py", *SCALE, *RUNS, *FILE],
    "cluster_failover": ["cluster_failover.py", *RUNS, *FILE],
    "mirror_rates": ["mirror_rates.py", *SCALE, *RUNS, *FILE],
    "mirror_link": ["mirror_link.py", *SCALE, "--runs", "1", *FILE],
    "compaction": ["compaction.py", *SCALE, *RUNS, *FILE],
    "consume_cli": ["consume_cli.py", *SCALE, *RUNS, *FILE],
    "registry": ["registry.py", *RUNS, *FILE],
    "tracking": ["tracking.py", *SCALE, *RUNS, *FILE],
    "auditor": ["auditor.py", *SCALE, *RUNS, *FILE],
    "spark_read": ["spark_read.py", *SCALE, *RUNS, *FILE],
    "load_tables": ["load_tables.py", *SCALE, *RUNS, *FILE],
    "lake_merge": ["lake_merge.py", *SCALE, *RUNS, *FILE],
    "spark_write": ["spark_write.py", *SCALE, *RUNS, *FILE],
    "streams": ["streams.py", *SCALE, *RUNS, *FILE],
}


def sections(text: str) -> list[str]:
    """Names of sections, parted by commas."""
    names = text.split(",")
    if wrong := sorted(set(names) - set(SECTIONS)):
        raise argparse.ArgumentTypeError(f"no such section: {', '.join(wrong)}; there are {', '.join(SECTIONS)}")
    return names


def main() -> None:
    """Run the sections, print the tables of those that ran to their end; exit code 1 if one did not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", type=sections, default=[], metavar="SECTION,...", help=", ".join(SECTIONS))
    given = parser.parse_args()
    out = OUT / f"{'-'.join(['bench', *given.only])}.jsonl"
    OUT.mkdir(exist_ok=True)
    out.unlink(missing_ok=True)
    values = {"runs": given.runs, "scale": given.scale, "out": out}
    failed = []
    for name in given.only or SECTIONS:
        print(f"# {name}", flush=True)
        program, *arguments = [each.format(**values) for each in SECTIONS[name]]
        begun, withheld = time.monotonic(), Withheld()
        if subprocess.run([sys.executable, str(HERE / program), *arguments], check=False).returncode:
            failed.append(name)
        print(f"# {name}: {time.monotonic() - begun:.0f} s; the host withheld {withheld.share():.0%} of the processors", flush=True)
    if out.exists():
        subprocess.run([sys.executable, str(HERE / "ratios.py"), str(out)], check=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
