"""What goes wrong with changelogs."""

from moldau.model.errors import MoldauError


class ChangelogError(MoldauError):
    """Root of what publishers, sources and replicas raise."""


class RecordError(ChangelogError):
    """A record is not what a topic of a changelog holds."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(f"partition {topic}-{partition} at offset {offset}: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason


class ValueRefusedError(ChangelogError):
    """A change has a value that cannot be written."""
