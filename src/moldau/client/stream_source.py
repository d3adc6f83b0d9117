"""What message streams need of the component that assigns partitions and fetches them.

`moldau.client.session.Session` is one: a member of a consumer group. Another one (consumers that share the
partitions out among themselves) may feed the same streams. Only the streams' feeder calls it, from its one thread.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from moldau.client.message import ConsumedMessage
from moldau.client.session import RebalanceListener
from moldau.model.identity import Offset, TopicPartition


class StreamSource(Protocol):
    """Fetches partitions of topics that are shared with others. Errors are `moldau.client.failures.ClientError`."""

    commits_by_itself: bool
    """Whether what is stored is committed now and then."""

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        """Take part. The listener is told, within `fetch` and `close`, which partitions come and go."""

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are ours now."""

    def fetch(self, count: int, timeout_s: float) -> list[ConsumedMessage]:
        """At most `count` messages of our partitions that are not paused, in order; the first one is waited for.

        None that was fetched before its partition went, though it has come back in the same moment.
        """

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing of these for now; those that were not fetched come after `resume`."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch them again."""

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are to be read next by whoever has the partition then; they may be committed later, but not after the partition is gone."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The same, and wait until it is so. What was stored before and could not be committed is told now, by an error."""

    def seek(self, where: TopicPartition, offset: int) -> None:
        """Fetch one of our partitions from there on."""

    def bounds(self, where: TopicPartition) -> tuple[Offset, Offset]:
        """First offset and end."""

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """The first offset not older than a time in ms; left out where there is none."""

    def close(self) -> None:
        """Give the partitions up; what was stored is committed. Does not wait for ever; an error says what was not committed."""
