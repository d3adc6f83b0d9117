"""How fast logs are compacted, and what that costs those who produce meanwhile.

    python benchmarks/compaction.py [--scale 1.0] [--runs 3] [--out FILE]

Alone: a worker process over a log of 1 GB (times --scale) of 200-byte values in batches of 50, uncompressed, whose keys come five times
each; from the task to the last synced file, both readings of the log included. Rates are bytes of the log by seconds.

Beside a load: acknowledgements of 100,000 messages a second in batches of 50, acks 1, for 6 s (times --scale), the first quarter not
counted; in turns with nothing else going on and while the broker compacts other topics without pause.
"""

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from load import LoadClient, build
from measure import Results, cpu_seconds, load_average, spread, touch_memory
from moldau.adapters.posix_files import PosixFiles
from moldau.adapters.worker_process import LoopWorkers
from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from moldau.log.cleaning.planning import CleanerSettings, find_dirt, task_for
from moldau.log.cleaning.task import WORK, PassDone, decode_message
from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.model.identity import TopicPartition
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.header import check_batch
from support.one_log import close_clean
from support.server import ServerProcess
from systems import ROOT

LOG_BYTES = 1_000_000_000
RATE_TARGET, RATIO_TARGET = 40, 2
BATCH, VALUE = 50, 200
TIMES_EACH = 5
RATE, SECONDS = 100_000, 6
TOPIC_BYTES = 300_000_000
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=100 * 1024 * 1024, retention_ms=-1)


def fill(log: PartitionLog, size: int) -> None:
    """Append batches until the log has this size, in closed segments, on disk."""
    per_batch = BATCH * (VALUE + 24)
    different = max(1, size // per_batch // TIMES_EACH)
    order = random.Random(1)
    now_ms = int(time.time() * 1000)
    batches = []
    for number in range(different):
        builder = RecordBatchBuilder()
        for each in range(BATCH):
            builder.append(
                now_ms, b"key-%010d" % order.randrange(different * BATCH), b"%d " % (number * BATCH + each) + b"x" * (VALUE - 10)
            )
        batches.append(builder.build())
    while log.size_bytes < size:
        staged = [memoryview(bytearray(order.choice(batches))) for _ in range(100)]
        for batch in staged:
            log.append_as_leader(batch, check_batch(batch), now_ms)
        log.write_staged()
    log._appender.roll(now_ms)
    log.advance_high_watermark(log.log_end_offset)
    job = log.flush_job()
    assert job is not None
    job.run()
    log.flush_done(job)


def open_log(folder: Path, topic: str) -> PartitionLog:
    """A log in a folder of its own."""
    where = TopicPartition(topic, 0)
    return PartitionLog.open(PosixFiles(), str(folder), where, CONFIG, recovery_point=0, start_offset=0, clean=True, now_ms=0)


def alone(folder: Path, results: Results, scale: float, runs: int) -> None:
    """The worker on a log that nobody uses. Nothing is swapped in, so that each run finds the same."""
    log = open_log(folder / "alone-0", "alone")
    fill(log, int(LOG_BYTES * scale))
    dirt = find_dirt(log, None, int(time.time() * 1000))
    assert dirt is not None
    task = task_for(dirt, CleanerSettings(), int(time.time() * 1000))
    rates = []
    for run in range(runs):
        load = load_average()
        done, seconds = asyncio.run(work(task.encode()))
        assert done.end_offset == dirt.end_offset, "one pass was to be enough"
        rates.append(dirt.dirty_bytes / 1e6 / seconds)
        results.write(
            system="moldau", test="compaction alone", run=run, load=load, mb_per_s=round(rates[-1], 1), seconds=round(seconds, 3),
            map_seconds=round(done.map_seconds, 3), bytes=dirt.dirty_bytes, records=done.records_read, kept=done.records_kept,
        )  # fmt: skip
    middle = spread(rates)
    met = middle["median"] >= RATE_TARGET
    results.write(system="moldau", test="compaction alone", summary=True, mb_per_s=middle, target=f">= {RATE_TARGET}", met=met)
    log.close()


async def work(task: bytes) -> tuple[PassDone, float]:
    """One pass by a worker process; what it said at last, and how long it took."""
    loop = asyncio.get_running_loop()
    workers = LoopWorkers(loop)
    ended: asyncio.Future[Exception | None] = loop.create_future()
    said: list[bytes] = []
    begun = time.monotonic()
    workers.run(WORK, task, said.append, ended.set_result)
    error = await ended
    seconds = time.monotonic() - begun
    workers.close()
    if error is not None:
        raise error
    done = decode_message(said[-1])
    assert isinstance(done, PassDone), done
    return done, seconds


def beside_a_load(folder: Path, results: Results, scale: float, runs: int) -> None:
    """Acknowledgements in turns with and without compaction in the same broker."""
    program = build(ROOT / "out")
    data = folder / "data"
    topics = [f"compacted-{number}" for number in range(4 * runs + 4)]
    with ServerProcess(data) as server, Cluster(server.bootstrap) as cluster:
        for topic in topics:
            Admin(cluster).create_topic(topic, 1, configs={"cleanup.policy": "compact", "segment.bytes": str(CONFIG.segment_bytes)})
    fill_topics(data, topics, int(TOPIC_BYTES * scale))
    settings = {"log.cleaner.backoff.ms": "50", "log.cleaner.threads": "0"}
    with ServerProcess(data, settings=settings) as server, Cluster(server.bootstrap) as cluster:
        client, admin = LoadClient(program, server.bootstrap), Admin(cluster)
        count = int(RATE * SECONDS * scale)
        rows: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for run in range(runs + 1):
            for compacting in (False, True):
                admin.alter_configs(
                    AdminResource(AdminResourceType.BROKER, ""), ConfigUpdate({"log.cleaner.threads": str(int(compacting))})
                )
                wait_until(lambda wanted=compacting: bool(children(server.pid)) == wanted)  # type: ignore[misc]
                topic = f"acks-{run}-{compacting}"
                client.create(topic)
                touch_memory(2 * count * VALUE)
                load, before, full = load_average(), cpu_seconds(server.pid), full_segments(data, topics)
                result = client.run("acks", topic, count, RATE, settings=["linger.ms=1", "batch.num.messages=50", "acks=1"])
                result["cpu_share"] = round((cpu_seconds(server.pid) - before) / result["seconds"], 3)
                cleaned = (full - full_segments(data, topics)) * CONFIG.segment_bytes
                result["cleaned_mb_per_s"] = round(cleaned / 1e6 / result["seconds"], 1)
                if compacting and not children(server.pid):
                    raise SystemExit("everything was compacted before the load ended: more topics are needed")
                client.delete(topic)
                if run:  # the first one warms up
                    rows[compacting].append(result)
                    results.write(system="moldau", test="acks", rate=RATE, compacting=compacting, run=run, load=load, **result)
        for compacting, found in rows.items():
            summary = {key: spread([row[key] for row in found]) for key in ("p50_us", "p99_us", "p999_us", "cleaned_mb_per_s")}
            results.write(system="moldau", test="acks", rate=RATE, compacting=compacting, summary=True, **summary)
        ratio = round(_median(rows[True]) / _median(rows[False]), 2)
        results.write(system="moldau", test="acks", rate=RATE, p99_ratio=ratio, target=f"<= {RATIO_TARGET}", met=ratio <= RATIO_TARGET)


def _median(rows: list[dict[str, Any]]) -> float:
    return spread([row["p99_us"] for row in rows])["median"]


def fill_topics(data: Path, topics: list[str], size: int) -> None:
    """Fill the first topic's log and copy it to the others; the server is down."""
    first = data / f"{topics[0]}-0"
    log = open_log(first, topics[0])
    fill(log, size)
    close_clean(log)
    for topic in topics[1:]:
        for file in first.iterdir():
            if file.name != "partition.metadata":
                shutil.copy(file, data / f"{topic}-0" / file.name)
    (data / "recovery-point-offset-checkpoint").write_text(
        "\n".join(["0", str(len(topics)), *(f"{topic} 0 {log.log_end_offset}" for topic in topics), ""])
    )
    os.sync()


def full_segments(data: Path, topics: list[str]) -> int:
    """Closed segments that were not compacted yet: a fifth stays of one that was."""
    sizes = [path.stat().st_size for topic in topics for path in (data / f"{topic}-0").glob("*.log")]
    return sum(1 for size in sizes if size > CONFIG.segment_bytes // 2)


def children(pid: int) -> list[int]:
    """Ids of the processes that this one has started: of a broker, its workers (Linux)."""
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait, for two minutes at most."""
    limit = time.monotonic() + 120
    while not condition():
        if time.monotonic() > limit:
            raise SystemExit("the broker does not begin, or does not end, to compact")
        time.sleep(0.05)


def main() -> None:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder:
        alone(Path(folder), results, given.scale, given.runs)
        beside_a_load(Path(folder), results, given.scale, given.runs)


if __name__ == "__main__":
    main()
