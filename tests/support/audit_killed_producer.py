"""A service that publishes tracked events until it is killed, or so many and then ends in order.

    python -m support.audit_killed_producer BOOTSTRAP HOST COUNT

COUNT 0: without end. It prints a line when the first events are in the log.
"""

import itertools
import sys

from moldau.tracking.producer import TrackerProducer
from support.audit_events import NOON
from support.tracked_events import TEN_FIELDS, MemoryRegistry, page_view

TOPIC = "page-views"


def main(bootstrap: str, host: str, count: int) -> None:
    """Publish."""
    producer = TrackerProducer(
        service="shop",
        bootstrap_servers=bootstrap,
        registry=MemoryRegistry(),
        host=host,
        datacenter="ewr",
        schemas={TOPIC: TEN_FIELDS},
        audit_publish_interval_ms=50,
    )
    with producer:
        for number in range(count) if count else itertools.count():
            producer.track(page_view(number), time=NOON + number % 1_000_000, topic=TOPIC)
            if number == 200:
                producer.flush()
                print("in the log", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
