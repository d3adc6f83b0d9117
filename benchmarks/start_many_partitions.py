"""Start of a log manager over 1,000 partitions of 3 segments after a clean stop: time and memory.

    python benchmarks/start_many_partitions.py [--partitions N] [--segments N] [--runs N]

Each run is a new process that imports the log, opens everything, and tells the seconds from before the import to the opened logs, and its
resident memory. The page cache is warm, as after any restart that is not one of the machine. Prints one JSON line. Bounds (mission A6, A8):
2 s, 100 MB.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CLUSTER = "AAAAAAAAQACAAAAAAAAAAA"
NOW_MS = 1_700_000_000_000
_CHILD = """
import sys, time
begun = time.perf_counter()
from moldau.adapters.posix_files import PosixFiles
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
imported = time.perf_counter()
manager = LogManager(PosixFiles(), [sys.argv[1]], LogConfig(), broker_id=0, cluster_id=sys.argv[2], random_bytes=bytes)
manager.start(int(sys.argv[3]))
opened = time.perf_counter()
import json, re, resource
if sys.platform == "linux":  # the kernel's maxrss would remember the parent's, from before the exec
    peak_mb = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
else:
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 / 1024
numbers = manager.statistics()
manager.shutdown()
print(json.dumps({
    "import_s": imported - begun, "open_s": opened - imported, "stop_s": time.perf_counter() - opened,
    "peak_mb": peak_mb, "partitions": numbers["partitions"],
}))
"""


def fill(directory: str, partitions: int, segments: int) -> None:
    """Make the logs: each segment of a few idempotent batches, each partition closed cleanly."""
    from moldau.adapters.posix_files import PosixFiles
    from moldau.log.config import LogConfig
    from moldau.log.manager import LogManager
    from moldau.model.identity import TopicPartition
    from moldau.protocol.records.batch import CREATE_TIME, Record, encode_batch
    from moldau.protocol.records.header import check_batch

    records = [Record(offset, NOW_MS, CREATE_TIME, None, b"x" * 200, []) for offset in range(50)]
    size = len(encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=0))
    manager = LogManager(PosixFiles(), [directory], LogConfig(), broker_id=0, cluster_id=CLUSTER, random_bytes=bytes)
    manager.start(NOW_MS)
    config = LogConfig(segment_bytes=2 * size)
    for partition in range(partitions):
        log = manager.create(TopicPartition("events", partition), b"\1" * 16, config, NOW_MS)
        for number in range(2 * segments):
            batch = memoryview(bytearray(encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=50 * number)))
            log.append_as_leader(batch, check_batch(batch), NOW_MS)
            log.write_staged()
    manager.shutdown()


def measure(directory: str) -> dict[str, float]:
    """One start in a process of its own."""
    command = [sys.executable, "-c", _CHILD, directory, CLUSTER, str(NOW_MS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run(partitions: int, segments: int, runs: int) -> dict[str, object]:
    """Fill a temporary directory and start over it; medians."""
    with tempfile.TemporaryDirectory() as directory:
        fill(directory, partitions, segments)
        logs = sum(1 for _ in Path(directory).glob("events-*/*.log"))
        measured = [measure(directory) for _ in range(runs)]
    assert all(each["partitions"] == partitions for each in measured)
    totals = [each["import_s"] + each["open_s"] for each in measured]
    return {
        "benchmark": "start_many_partitions",
        "partitions": partitions,
        "segments": logs,
        "runs": runs,
        "start_s": round(statistics.median(totals), 3),
        "start_s_min": round(min(totals), 3),
        "start_s_max": round(max(totals), 3),
        "import_s": round(statistics.median(each["import_s"] for each in measured), 3),
        "stop_s": round(statistics.median(each["stop_s"] for each in measured), 3),
        "peak_mb": round(statistics.median(each["peak_mb"] for each in measured), 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--segments", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    print(json.dumps(run(options.partitions, options.segments, options.runs)))


if __name__ == "__main__":
    main()
