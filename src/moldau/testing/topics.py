"""Topics of a broker or a cluster for tests: made, listed and deleted, with names of their own."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.model.errors import ErrorCode, PeerError

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

TOPIC_NAME_MAX = 249
"""Kafka's limit for the name of a topic."""


class Topics(ABC):
    """See the module."""

    def __init__(self) -> None:
        self._names = itertools.count(1)

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """``HOST:PORT,...``, for a client's ``bootstrap.servers``."""

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> str:
        """Create a topic; its name. RequestFailedError says why it cannot be."""
        from moldau.client.admin import Admin

        with self._cluster() as cluster:
            configs = {key: setting_text(value) for key, value in (config or {}).items()}
            return Admin(cluster).create_topic(name, partitions, configs=configs).name

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic and its records."""
        from moldau.client.admin import Admin

        with self._cluster() as cluster:
            try:
                Admin(cluster).delete_topic(name)
            except PeerError as error:
                if not (missing_ok and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise

    def topics(self) -> list[str]:
        """Names of all topics."""
        with self._cluster() as cluster:
            return [topic.name for topic in cluster.topics()]

    def unique_topic(self, hint: str = "topic") -> str:
        """A topic name that was not given before, made from `hint`; the topic is not created."""
        number = f"-{next(self._names)}"
        legal = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in hint)
        return legal[: TOPIC_NAME_MAX - len(number)] + number

    def _cluster(self) -> "Cluster":
        """A client."""
        from moldau.client.cluster import Cluster

        return Cluster(self.bootstrap_servers)


def setting_text(value: object) -> str:
    """A setting as a file would have it: ``True`` is ``true``, a list is joined by commas."""
    match value:
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ",".join(map(setting_text, value))
        case _:
            return str(value)
