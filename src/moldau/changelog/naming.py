"""Names of a changelog: its topics, and the transactional id of a shard's publisher.

A changelog's name has no dot, so the first dot of a topic's name ends it, whatever the table is called.
"""

import re
from typing import Final, NamedTuple

from moldau.changelog.errors import ChangelogError
from moldau.changelog.values import ALL_SHARDS
from moldau.model.topic_names import LENGTH_MAX, NAME_RULE, is_allowed

COMMITS: Final = "_commits"
"""Instead of a table's name: the topic of commits."""
ADDRESS: Final = "address"
"""In the `source` of a commit: where the store that has made it is reached, as the store itself says."""
_CHANGELOG = re.compile(r"[a-zA-Z0-9-][a-zA-Z0-9_-]{0,99}")
_CHANGELOG_RULE: Final = "a changelog's name has 1 to 100 letters (a-z, A-Z), digits, '_' and '-', and does not begin with '_'"


class TableTopic(NamedTuple):
    """What the name of a table's topic says."""

    changelog: str
    table: str


def check_changelog(name: str) -> str:
    """This name. ChangelogError unless a changelog may have it."""
    if not _CHANGELOG.fullmatch(name):
        raise ChangelogError(f"a changelog cannot be named {name!r}; {_CHANGELOG_RULE}")
    return name


def check_shard(shard: int, shards: int) -> int:
    """This shard, or `ALL_SHARDS`. ChangelogError unless it is one of a changelog with so many."""
    if shards < 1:
        raise ChangelogError(f"a changelog has 1 shard or more, not {shards}")
    if shard == ALL_SHARDS:
        if shards == 1:
            raise ChangelogError("rows are divided over 2 shards or more: a changelog with one shard has a publisher of shard 0")
        return shard
    if not 0 <= shard < shards:
        raise ChangelogError(f"shard {shard} is none of a changelog with {shards} shards: 0 to {shards - 1}")
    return shard


def table_topic(changelog: str, table: str) -> str:
    """The topic of a table. ChangelogError for a table whose name no topic may have."""
    topic = f"{check_changelog(changelog)}.{table}"
    if table == COMMITS:
        raise ChangelogError(f"changelog {changelog}: a table cannot be named {COMMITS}: {topic} is the topic of commits")
    if not table or not is_allowed(topic):
        length = f", which has {len(topic)} characters" if len(topic) > LENGTH_MAX else ""
        raise ChangelogError(f"changelog {changelog}: table {table!r} would need the topic {topic!r}{length}; {NAME_RULE}")
    return topic


def commits_topic(changelog: str) -> str:
    """The topic of commits."""
    return f"{check_changelog(changelog)}.{COMMITS}"


def table_of(topic: str) -> TableTopic:
    """Changelog and table of a topic. ChangelogError for another topic than that of a table."""
    changelog, _, table = topic.partition(".")
    if not _CHANGELOG.fullmatch(changelog) or not table or table == COMMITS:
        raise ChangelogError(f"topic {topic} is not named as that of a changelog's table is: CHANGELOG.TABLE")
    return TableTopic(changelog, table)


def transactional_id(changelog: str, shard: int) -> str:
    """Of the publisher of a shard, or of all."""
    return f"changelog-{check_changelog(changelog)}-{'all' if shard == ALL_SHARDS else shard}"


def shard_text(shard: int) -> str:
    """For messages."""
    return "all shards" if shard == ALL_SHARDS else f"shard {shard}"
