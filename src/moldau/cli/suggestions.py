"""Suggestions for a topic or a group that does not exist: the nearest name in the brokers' list."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moldau.client.errors import RequestFailedError
from moldau.model.errors import ErrorCode, MoldauError
from moldau.model.near_names import did_you_mean

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster


@contextmanager
def suggesting(cluster: "Cluster") -> Iterator[None]:
    """The error for a topic or a group that was not found in this block suggests the nearest name."""
    try:
        yield
    except RequestFailedError as error:
        hint = "" if "did you mean" in error.message else did_you_mean(*_known(cluster, error))
        if not hint:
            raise
        raise RequestFailedError(error.code, f"{error.message.rstrip('.')}{hint}", error.subject) from error


def _known(cluster: "Cluster", error: RequestFailedError) -> tuple[str, Iterable[str]]:
    """The name that the error is about, and the existing ones; none where it is about something else, or no broker answers."""
    kind, _, name = str(error.subject or "").partition(" ")
    try:
        if kind == "topic" and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return name, [each.name for each in cluster.topics(internal=True)]
        if kind == "group" and error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            from moldau.client.groups import Groups

            return name, [each.group for each in Groups(cluster).list_groups()]
    except MoldauError:
        pass
    return name, ()
