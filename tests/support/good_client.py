"""A well-behaved client in a process of its own: ``python -m support.good_client HOST PORT``.

It produces and fetches, a round every few milliseconds, until its standard input ends; then it reads its topic from the beginning,
deletes it, and prints one JSON line: rounds served, the longest of them, and how many of its records are not there as they were
acknowledged.
"""

import json
import os
import select
import sys
import time

from moldau.protocol.messages.topics import DeleteTopicsRequest
from support.wire import Wire, batch, fetch, produce

PAUSE_S = 0.005
PRODUCE_VERSION, FETCH_VERSION = 9, 12


def main() -> None:
    wire = Wire((sys.argv[1], int(sys.argv[2])))
    topic = f"good-{os.getpid()}"
    wire.create(topic)
    print("ready", flush=True)
    served, longest_s, longest_at = 0, 0.0, 0.0
    started = time.monotonic()
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        begun = time.monotonic()
        produced = wire.ask(produce(topic, batch(b"%d" % served)), PRODUCE_VERSION).responses[0].partition_responses[0]
        assert (produced.error_code, produced.base_offset) == (0, served), produced
        fetched = wire.ask(fetch(topic, served), FETCH_VERSION).responses[0].partitions[0]
        assert (fetched.error_code, fetched.high_watermark) == (0, served + 1), fetched
        took_s = time.monotonic() - begun
        if took_s > longest_s:
            longest_s, longest_at = took_s, begun - started
        served += 1
    lost = _lost(wire, topic, served)
    wire.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5)
    print(json.dumps({"served": served, "longest_s": longest_s, "longest_at_s": longest_at, "lost": lost}), flush=True)


def _lost(wire: Wire, topic: str, served: int) -> int:
    from moldau.protocol.records.batch import iterate

    found = 0
    while found < served:
        records = wire.ask(fetch(topic, found), FETCH_VERSION).responses[0].partitions[0].records
        data, position = memoryview(records), 0
        while position < len(data):
            size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
            for record in iterate(data[position : position + size], max_decompressed_bytes=1 << 20):
                if record.value != b"%d" % found:
                    return served - found
                found += 1
            position += size
    return 0


if __name__ == "__main__":
    main()
