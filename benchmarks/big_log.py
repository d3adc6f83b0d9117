"""One log of many gigabytes: start, look-ups by offset and by time, retention, and the rates at its end beside those at its beginning.

    python benchmarks/big_log.py [--gigabytes 40] [--data DIR] [--out FILE]

Not part of `make bench`: it writes as much as it is told to, or what the disk has left but for a reserve. Messages of 200 bytes, one
partition, batches as large as librdkafka makes them. Rates of producing are those of the first and the last gigabyte; of reading, of a
gigabyte from either end, with how much of it came from the disk: where the log is larger than memory, all of the first gigabyte and
nothing of the last. The load client reads: Python would take longer than the broker. A look-up is a request of its own; offsets and
times are drawn over the whole log. While retention removes half of the log, a client that asks for its end sees how long it waits.
"""

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from load import LoadClient, build
from measure import Results, directory_bytes, disk_read_bytes, resident_mb
from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from support.server import ServerProcess
from systems import ROOT

SIZE = 200
GIGABYTE = 1_000_000_000
CHUNK = GIGABYTE // SIZE
RESERVE = 20 * GIGABYTE
"""What stays free on the disk."""
LARGE = ["linger.ms=5", "batch.num.messages=10000", "batch.size=1000000", "acks=1"]
READ = ["fetch.queue.backoff.ms=10"]
"""By default librdkafka stops fetching for a second whenever 100,000 messages wait in its queue, and its reader soon waits for it."""
LOOKUPS = 200
TOPIC = "big"


def consumer(bootstrap: str) -> confluent_kafka.Consumer:
    """A client that reads and asks; it commits nothing."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "big",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "log_level": 3,
    }
    return confluent_kafka.Consumer(settings)


def read(client: LoadClient, pid: int, first: int) -> dict[str, Any]:
    """Messages a second of a gigabyte from offset `first`, and how much of it the server had the disk read (Linux)."""
    before = disk_read_bytes(pid)
    seconds = client.run("consume", TOPIC, CHUNK, first, settings=READ)["seconds"]
    return {"rate": round(CHUNK / seconds), "disk_mb": round((disk_read_bytes(pid) - before) / 1e6)}


def look_up(bootstrap: str, end: int, begun_ms: int, ended_ms: int) -> dict[str, Any]:
    """Milliseconds of look-ups by offset (the first record there) and by time."""
    choice, reader = random.Random(1), consumer(bootstrap)
    by_time, by_offset = [], []
    for _ in range(LOOKUPS):
        wanted = confluent_kafka.TopicPartition(TOPIC, 0, choice.randrange(begun_ms, ended_ms))
        begun = time.perf_counter()
        (found,) = reader.offsets_for_times([wanted], timeout=10)
        by_time.append((time.perf_counter() - begun) * 1000)
        if found.error is not None:
            raise SystemExit(f"look-up by time {wanted.offset}: {found.error}")
    for _ in range(LOOKUPS):
        wanted = confluent_kafka.TopicPartition(TOPIC, 0, choice.randrange(end))
        begun = time.perf_counter()
        reader.assign([wanted])
        while (message := reader.poll(10)) is None or message.error():
            if message is not None:
                raise SystemExit(f"look-up at offset {wanted.offset}: {message.error()}")
        by_offset.append((time.perf_counter() - begun) * 1000)
        if message.offset() != wanted.offset:
            raise SystemExit(f"look-up at offset {wanted.offset}: found {message.offset()}")
    reader.close()
    return {
        name: {"median": round(statistics.median(each), 2), "max": round(max(each), 2)}
        for name, each in (("by_time_ms", by_time), ("by_offset_ms", by_offset))
    }


class Watcher(threading.Thread):
    """Asks for the end of the log again and again; remembers the longest wait."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.longest_ms = 0.0
        self.stopping = threading.Event()
        self._reader = consumer(bootstrap)

    def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping.wait(0.005):
            begun = time.perf_counter()
            self._reader.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 0), timeout=30, cached=False)
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - begun) * 1000)
        self._reader.close()


def retain(bootstrap: str, kept_bytes: int) -> dict[str, Any]:
    """Have retention remove what is beyond `kept_bytes`: seconds until the log begins later, and the longest wait of another client."""
    watcher = Watcher(bootstrap)
    watcher.start()
    begun = time.monotonic()
    with Cluster(bootstrap) as cluster:
        Admin(cluster).alter_configs(AdminResource(AdminResourceType.TOPIC, TOPIC), ConfigUpdate({"retention.bytes": str(kept_bytes)}))
    reader, first = consumer(bootstrap), 0
    while not first:
        first, end = reader.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 0), timeout=30, cached=False)
        time.sleep(0.02)
    took = time.monotonic() - begun
    time.sleep(3)  # the files go after file.delete.delay.ms
    watcher.stopping.set()
    watcher.join()
    reader.close()
    return {"seconds": round(took, 2), "removed": round(first / end, 3), "others_longest_ms": round(watcher.longest_ms, 1)}


def main() -> None:
    """Fill, stop, start, look up, read, retain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=int, default=40)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where the log is to lie")
    parser.add_argument("--out", type=Path, help="append the JSON lines to this file as well")
    given = parser.parse_args()
    gigabytes = min(given.gigabytes, (shutil.disk_usage(given.data).free - RESERVE) // GIGABYTE)
    if gigabytes < 2:
        raise SystemExit(f"--gigabytes is 2 or more, and {given.data} needs as much free beside a reserve of {RESERVE // GIGABYTE} GB")
    results = Results(given.out)
    program = build(ROOT / "out")
    folder = Path(tempfile.mkdtemp(prefix="moldau-big-log-", dir=given.data))
    settings = {"log.retention.bytes": "-1", "log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "1000"}
    server = ServerProcess(folder, settings=settings)
    try:
        server.start()
        client = LoadClient(program, server.bootstrap)
        client.create(TOPIC)
        begun_ms = time.time_ns() // 1_000_000
        rates = [CHUNK / client.run("produce", TOPIC, CHUNK, SIZE, settings=LARGE)["seconds"] for _ in range(gigabytes)]
        ended_ms, end = time.time_ns() // 1_000_000, gigabytes * CHUNK
        results.write(
            test="big log", what="produce", gigabytes=gigabytes, first=round(rates[0]), last=round(rates[-1]),
            median=round(statistics.median(rates)), least=round(min(rates)), rss_mb=resident_mb(server.pid),
            overhead_bytes=round(directory_bytes(folder, f"{TOPIC}-0/*.log") / end - SIZE, 2),
        )  # fmt: skip
        stopping = time.monotonic()
        server.stop()
        starting = time.monotonic()
        server.start()
        started = time.monotonic()
        client.wait_for_end_offset(TOPIC, end)
        results.write(
            test="big log", what="start", stop_s=round(starting - stopping, 2), listens_s=round(started - starting, 3),
            end_offset_s=round(time.monotonic() - starting, 3), rss_mb=resident_mb(server.pid),
        )  # fmt: skip
        results.write(test="big log", what="look-up", **look_up(server.bootstrap, end, begun_ms, ended_ms))
        first, last = read(client, server.pid, 0), read(client, server.pid, end - CHUNK)
        results.write(test="big log", what="read", first=first, last=last)
        results.write(test="big log", what="retention", **retain(server.bootstrap, gigabytes * GIGABYTE // 2))
    finally:
        if server.running:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
