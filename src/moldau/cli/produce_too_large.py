"""Records of ``moldau produce`` that were too large: on which lines they stand, what the limit is, and what helps.

Brokers take or refuse a batch; a small record that shared one with a large one is refused with it. So each line told has its own size, and
the limit is said once.
"""

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from moldau.cli.output import counted
from moldau.client.failures import LIMITS
from moldau.model.errors import ErrorCode, MoldauError

if TYPE_CHECKING:
    from moldau.client.admin import ConfigEntry
    from moldau.client.cluster import Cluster

LINES_TOLD = 10
LARGE_BYTES = 4096
"""Of key and value: the line of a record of fewer is not remembered."""
ASK_S = 5.0
"""How long the brokers are asked for the limit; without their answer it is told without its number."""


def topic_limit(cluster: "Cluster", topic: str, name: str) -> "ConfigEntry | None":
    """What holds for a topic by this setting; None if the brokers do not say."""
    from moldau.client.admin import Admin, Resource, ResourceType

    try:
        entries = Admin(cluster).describe_configs(Resource(ResourceType.TOPIC, topic))
    except MoldauError:
        return None
    return next((entry for entry in entries if entry.name == name and entry.value is not None), None)


class TooLarge:
    """Collects them for one topic, in the order in which they came back."""

    def __init__(self, bootstrap: str, topic: str, producer_bytes_max: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._producer_bytes_max = producer_bytes_max
        self._lines: list[tuple[int, int]] = []
        """Sizes and lines of the largest, as a heap."""
        self._more = 0
        self._not_kept = 0
        self._largest = 0
        self._codes: set[ErrorCode] = set()
        self._by_producer = False

    def by_producer(self, line: int, size: int) -> None:
        """The producer itself has refused the record on this line, with so many bytes of key and value."""
        self._by_producer = True
        self._note(line, size)

    def by_broker(self, code: int, line: int | None, size: int) -> None:
        """A broker has refused the record's batch. `line` is None where it was not kept."""
        self._codes.add(ErrorCode(code))
        self._largest = max(self._largest, size)
        if line is None:
            self._not_kept += 1
        else:
            self._note(line, size)

    def _note(self, line: int, size: int) -> None:
        if len(self._lines) < LINES_TOLD:
            heapq.heappush(self._lines, (size, line))
        else:
            heapq.heappushpop(self._lines, (size, line))
            self._more += 1

    def told(self, file: str) -> Iterator[str]:
        """The lines, then the limits. Nothing if no record was too large."""
        for line, size in sorted((line, size) for size, line in self._lines):
            yield f"{file}:{line}: not delivered to topic {self._topic}: key and value have {size:,} bytes"
        if self._more:
            yield f"and {counted(self._more, 'more line')}, with no more bytes"
        if self._not_kept:
            yield f"and {counted(self._not_kept, 'record')} of under {LARGE_BYTES:,} bytes, whose lines are not remembered"
        if self._by_producer:
            limit = f"{self._producer_bytes_max:,} bytes with headers and framing: message.max.bytes of this producer"
            yield f"topic {self._topic}: a record may have {limit}; send less in one record"
        for code in sorted(self._codes):
            name, of_brokers = LIMITS[code]
            allowed = self._allowed(name, of_brokers)
            helps = f"raise {name} (moldau topic alter {self._topic} --config {name}=BYTES), or send less in one record"
            largest = f"the largest record of those refused has {self._largest:,} bytes of key and value"
            yield f"topic {self._topic}: a batch of records may have {allowed}; {largest}; {helps}"

    def _allowed(self, name: str, of_brokers: str) -> str:
        from moldau.model.config.definition import ConfigSource

        found = self._ask(name)
        if found is None:
            return f"no more than {name} of the topic says"
        whose = f"{name} of the topic" if found.source is ConfigSource.DYNAMIC_TOPIC else f"{of_brokers} of the brokers"
        return f"{int(found.value or 0):,} bytes: {whose}"

    def _ask(self, name: str) -> "ConfigEntry | None":
        from moldau.client.cluster import Cluster

        try:
            with Cluster(self._bootstrap, client_id="moldau-cli", timeout_s=ASK_S) as cluster:
                return topic_limit(cluster, self._topic, name)
        except MoldauError:
            return None
