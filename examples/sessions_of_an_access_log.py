"""Sessions of an access log: who came when, for how long, and how many pages they saw.

    python examples/sessions_of_an_access_log.py --bootstrap 127.0.0.1:9092 --directory /tmp/sessions

Writes an access log of six visitors to the topic `access-log`, unless it is there, and runs the job to the end of it. A session ends when
nothing of a visitor has come for half an hour; its row comes when the watermark, ten minutes behind the newest request, has passed that.
"""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta

from example_topics import ensure_topic, print_rows, produce
from pyspark.sql import functions

from moldau.streams import StreamJob, windows

BEGIN = datetime(2026, 1, 5, 8, tzinfo=UTC)
PAGES = ("/", "/search", "/item", "/cart", "/help")


def access_log() -> list[tuple[str, str]]:
    """Requests of a morning in the order of their times, as keys and JSON; the last one, of the next day, closes all sessions."""
    draw = random.Random(5)
    found = []
    for visitor in range(6):
        at = BEGIN + timedelta(minutes=draw.randrange(60))
        for _visit in range(3):
            for _page in range(draw.randrange(2, 9)):
                found.append((at, f"visitor-{visitor}", draw.choice(PAGES)))
                at += timedelta(seconds=draw.randrange(5, 600))
            at += timedelta(minutes=draw.randrange(40, 90))
    found.append((BEGIN + timedelta(days=1), "monitoring", "/"))
    return [(who, json.dumps({"at": at.isoformat(), "visitor": who, "page": page})) for at, who, page in sorted(found)]


def sessions(brokers: str, directory: str) -> StreamJob:
    """The job: sessions with their length in seconds."""
    job = StreamJob("access-sessions", brokers=brokers, directory=directory)
    requests = job.topic("access-log", format="json", schema="at timestamp, visitor string, page string", time="at")
    found = windows.sessions(requests, "30 minutes", "visitor")
    seconds = functions.unix_seconds("window.end") - functions.unix_seconds("window.start") - 30 * 60
    rows = found.select("visitor", "window", seconds.alias("seconds"), functions.col("count").alias("pages"))
    job.to_topic(rows, "access-sessions", key="visitor")
    return job


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--directory", required=True, help="where the job's checkpoint lies")
    given = parser.parse_args()
    if ensure_topic(given.bootstrap, "access-log"):
        produce(given.bootstrap, "access-log", access_log())
    ensure_topic(given.bootstrap, "access-sessions")
    sessions(given.bootstrap, given.directory).run(once=True)
    print_rows(given.bootstrap, "access-sessions")
