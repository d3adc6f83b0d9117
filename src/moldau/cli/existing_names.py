"""Names of topics, groups and brokers that exist: for a shell to complete, and for suggestions where one does not exist.

A shell waits for this while a user types, so everything has a time limit, host names that do not resolve included, and nothing is
printed: where no broker answers there are no names.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from moldau.client.errors import RequestFailedError
from moldau.model.errors import ErrorCode, MoldauError
from moldau.model.near_names import did_you_mean

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

LIMIT_S = 1.0
ANSWER_LIMIT_S = 0.5
"""For the broker; the rest is for host names."""


def topic_names(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Topics that begin with `incomplete`; internal ones once their underscore is typed."""

    def ask(cluster: "Cluster") -> list[str]:
        return [topic.name for topic in cluster.topics(internal=incomplete.startswith("_"))]

    return _answers(ctx, incomplete, ask)


def changelog_names(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Changelogs that begin with `incomplete`."""
    from moldau.changelog.naming import COMMITS

    end = f".{COMMITS}"

    def ask(cluster: "Cluster") -> list[str]:
        return [topic.name.removesuffix(end) for topic in cluster.topics(internal=False) if topic.name.endswith(end)]

    return _answers(ctx, incomplete, ask)


def group_names(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Groups that begin with `incomplete`."""
    from moldau.client.groups import Groups

    return _answers(ctx, incomplete, lambda cluster: [each.group for each in Groups(cluster).list_groups(())])


def broker_ids(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The numbers of live brokers that begin with `incomplete`."""
    return _answers(ctx, incomplete, lambda cluster: map(str, cluster.metadata([]).brokers))


def _answers(ctx: click.Context, incomplete: str, ask: "Callable[[Cluster], Iterable[str]]") -> list[CompletionItem]:
    found: list[str] = []
    bootstrap = ctx.params.get("bootstrap")
    if bootstrap is None:  # one that cannot be read
        return []
    asking = Thread(target=lambda: found.extend(_ask(bootstrap, ask)), daemon=True)
    asking.start()
    asking.join(LIMIT_S)
    return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete) and _can_be_completed(name)]


def _ask(bootstrap: str, ask: "Callable[[Cluster], Iterable[str]]") -> list[str]:
    from moldau.client.cluster import Cluster

    try:
        with Cluster(bootstrap, client_id="moldau-completion", timeout_s=ANSWER_LIMIT_S) as cluster:
            return list(ask(cluster))
    except (MoldauError, OSError):
        return []


def _can_be_completed(name: str) -> bool:
    """Whether the shells' lists, which are lines of words, can carry the name of a group, which may have any characters."""
    return name.isprintable() and not any(letter.isspace() for letter in name)


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
