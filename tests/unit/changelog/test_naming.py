"""A changelog's topics and transactional ids are known by its name; names that no topic can have are refused with the reason."""

import pytest

from moldau.changelog.errors import ChangelogError
from moldau.changelog.naming import (
    TableTopic,
    check_changelog,
    check_shard,
    commits_topic,
    table_of,
    table_topic,
    transactional_id,
)


def test_topics_are_named_by_the_changelog_and_the_table() -> None:
    assert table_topic("shop", "orders") == "shop.orders"
    assert table_topic("shop", "public.orders") == "shop.public.orders"
    assert commits_topic("shop") == "shop._commits"
    assert transactional_id("shop", 2) == "changelog-shop-2"


def test_the_first_dot_of_a_topic_ends_the_changelogs_name() -> None:
    assert table_of("shop.orders") == TableTopic("shop", "orders")
    assert table_of("shop.public.orders") == TableTopic("shop", "public.orders")


@pytest.mark.parametrize("topic", ["shop", "shop.", ".orders", "shop._commits", "_shop.orders"])
def test_other_topics_are_none_of_a_table(topic: str) -> None:
    with pytest.raises(ChangelogError, match=f"topic {topic} is not named"):
        table_of(topic)


@pytest.mark.parametrize("name", ["", "a.b", "_shop", "with space", "x" * 101, "größe"])
def test_names_that_a_changelog_cannot_have_are_refused(name: str) -> None:
    with pytest.raises(ChangelogError, match="a changelog cannot be named"):
        check_changelog(name)


@pytest.mark.parametrize(
    ("table", "reason"), [("order lines", "'order lines'"), ("", "''"), ("_commits", "topic of commits"), ("x" * 245, "250 characters")]
)
def test_a_table_whose_topic_cannot_be_is_refused(table: str, reason: str) -> None:
    with pytest.raises(ChangelogError, match=reason):
        table_topic("shop", table)


def test_a_shard_is_one_of_the_changelog() -> None:
    assert check_shard(2, 3) == 2
    with pytest.raises(ChangelogError, match="shard 3 is none of a changelog with 3 shards: 0 to 2"):
        check_shard(3, 3)
    with pytest.raises(ChangelogError, match="1 shard or more, not 0"):
        check_shard(0, 0)
