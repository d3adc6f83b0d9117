"""``moldau consume`` beside kcat: a whole topic printed to nowhere, start of the process included.

    python benchmarks/consume_cli.py [--scale 1.0] [--runs 3] [--out FILE]

A topic of 2.4 million JSON lines of some 70 bytes with keys of six, in one partition, in plain batches and in zstd ones. Both commands
print the values of all of it; a quarter of it each with a template and as JSON. They take turns; the first run warms up. Where kcat has
a format most of its time goes into waiting: those rows have no target.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Results, load_average, spread
from systems import moldau

RECORDS = 2_400_000
CODECS = ("none", "zstd")
PARTS = 4
FORMATS: dict[str, tuple[list[str], list[str]]] = {
    "values": ([], []),
    "template": (["--format", "%p %o %T %k %s"], ["-f", "%p %o %T %k %s\n"]),
    "json": (["--format", "json"], ["-J"]),
}
"""Arguments for the same output: ours and kcat's."""


def fill(bootstrap: str, topic: str, codec: str, records: int) -> None:
    """Send the lines, by kcat."""
    command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-z", codec, "-K", "\t"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as sender:
        assert sender.stdin is not None
        for number in range(records):
            tail = f"N{number % 4000:05}"
            row = {"id": number, "tail": tail, "dest": "JFK", "delay": number % 97 - 20, "hour": number % 24}
            sender.stdin.write(f"{tail}\t{json.dumps(row)}\n")
        sender.stdin.close()
    assert sender.returncode == 0


def seconds(command: list[str]) -> float:
    """How long a command takes that has to succeed."""
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return round(time.perf_counter() - begun, 3)


def main() -> None:
    """All formats of both topics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of records")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="append the JSON lines to this file as well")
    given = parser.parse_args()
    results = Results(given.out)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        bootstrap = stack.enter_context(moldau(folder)).bootstrap
        for codec in CODECS:
            whole = max(int(RECORDS * given.scale), 4 * PARTS)
            fill(bootstrap, codec, codec, whole)
            for format_, (ours, theirs) in FORMATS.items():
                if format_ != "values" and codec != "none":
                    continue
                records = whole if format_ == "values" else whole // PARTS
                part = ([], []) if format_ == "values" else (["--max", str(records)], ["-c", str(records)])
                commands = {
                    "moldau": [sys.executable, "-m", "moldau.cli.main", "consume", codec, "-b", bootstrap, "--until-end", *ours, *part[0]],
                    "kcat": ["kcat", "-C", "-b", bootstrap, "-t", codec, "-e", "-q", *theirs, *part[1]],
                }
                took: dict[str, list[float]] = {name: [] for name in commands}
                for run in range(given.runs + 1):  # the first one warms up
                    for name, command in commands.items():
                        needed = seconds(command)
                        if run:
                            took[name].append(needed)
                for name in commands:
                    cell = {"codec": codec, "format": format_, "records": records, "seconds": spread(took[name])}
                    results.write(system=name, test="consume-cli", summary=True, load=load_average(), **cell)


if __name__ == "__main__":
    main()
