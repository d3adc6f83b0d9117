"""How long the events of the last minutes were on their way, by topic: for a page of metrics. Any thread may ask."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from moldau.tracking.latencies import NO_LATENCIES, Latencies

PERIOD_S: Final = 60.0


class RecentLatencies:
    """Of this minute and the one before it. Topics without events in that time are forgotten, so it is bounded."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._now: dict[str, Latencies] = {}
        self._before: dict[str, Latencies] = {}
        self._begun = monotonic()

    def add(self, latencies: Mapping[tuple[str, int], Latencies]) -> None:
        """Those that were just counted, by topic and window."""
        with self._lock:
            self._turn()
            for (topic, _), each in latencies.items():
                self._now[topic] = self._now.get(topic, NO_LATENCIES) + each

    def by_topic(self) -> dict[str, Latencies]:
        """Of one to two minutes."""
        with self._lock:
            self._turn()
            topics = sorted(self._now.keys() | self._before.keys())
            return {topic: self._now.get(topic, NO_LATENCIES) + self._before.get(topic, NO_LATENCIES) for topic in topics}

    def _turn(self) -> None:
        periods = int((self._monotonic() - self._begun) // PERIOD_S)
        if periods:
            self._before = self._now if periods == 1 else {}
            self._now = {}
            self._begun += periods * PERIOD_S
