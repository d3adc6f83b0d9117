"""The four kinds of messages, each with what its topics and its producers are set to.

Queuing: each message is work for one worker. Metrics: numbers about how things run, of little use next week. Logs: lines of programs, many
and well compressible. Tracking: what members and services do, the input of analysis, kept long enough to load it again.
"""

from dataclasses import dataclass
from typing import Final, Literal

from moldau.client.settings import Codec
from moldau.tracking.topics import TopicDefaults, ensure_topic

CategoryName = Literal["queuing", "metrics", "logs", "tracking"]

_DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Category:
    """One kind: how its topics are made, and how its producers compress."""

    name: CategoryName
    topics: TopicDefaults
    compression: Codec

    def ensure(self, bootstrap: str, topic: str) -> bool:
        """Make a topic of this kind if it is not there; whether it was made now. See `ensure_topic`."""
        return ensure_topic(bootstrap, topic, self.topics)


def _defaults(partitions: int, days: int) -> TopicDefaults:
    return TopicDefaults(partitions, {"cleanup.policy": "delete", "retention.ms": str(days * _DAY_MS)})


QUEUING: Final = Category("queuing", _defaults(partitions=12, days=14), "none")
"""Twelve workers at most at a time, and a fortnight to notice that there are none."""
METRICS: Final = Category("metrics", _defaults(partitions=2, days=3), "lz4")
LOGS: Final = Category("logs", _defaults(partitions=4, days=3), "zstd")
TRACKING: Final = Category("tracking", _defaults(partitions=8, days=7), "lz4")

_CATEGORIES: Final = {each.name: each for each in (QUEUING, METRICS, LOGS, TRACKING)}


def category(name: CategoryName) -> Category:
    """The kind of that name. ValueError."""
    if name not in _CATEGORIES:
        raise ValueError(f"a category is one of {', '.join(_CATEGORIES)}, not {name!r}")
    return _CATEGORIES[name]
