"""A program that forks while an event is on its way: ``python fork_with_tracker.py BOOTSTRAP TOPIC``."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from moldau.tracking import TrackerProducer
from support.tracked_events import LIMIT_S, TEN_FIELDS, MemoryRegistry, page_view


def main(bootstrap: str, topic: str) -> None:
    """Track, fork, track in both, wait for the child."""
    tracker = TrackerProducer(
        service="shop", bootstrap_servers=bootstrap, registry=MemoryRegistry(), schemas={topic: TEN_FIELDS}, linger_ms=200
    )
    tracker.track(page_view(), topic=topic).result(LIMIT_S)
    tracker.track(page_view(), topic=topic)
    child = os.fork()
    if child == 0:
        try:
            tracker.track(page_view(), topic=topic)
        except RuntimeError as error:
            print(error, flush=True)
        sys.exit(3)
    _, status = os.waitpid(child, 0)
    tracker.close()
    print(f"the child ended with {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
