"""Which topics are mirrored: the rules as a table; over drawn patterns and changes what comes and goes, beside an obvious version."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.mirror.patterns import NamePatterns, parse_pattern
from moldau.mirror.selection import NEVER, Action, Change, Difference, TopicSelection

TOPICS = ["__consumer_offsets", "_audit", "_mirror_positions", "_schemas", "orders", "orders-test", "web.clicks", "web.views"]


def selection(include: list[str], exclude: list[str]) -> TopicSelection:
    return TopicSelection(NamePatterns(tuple(map(parse_pattern, include)), tuple(map(parse_pattern, exclude))))


def change(words: str) -> Change:
    action, pattern = words.split()
    return Change(Action(action), parse_pattern(pattern))


RULES = [
    ([".*"], [], [], ["orders", "orders-test", "web.clicks", "web.views"]),
    (["orders"], [], [], ["orders"]),
    (["order"], [], [], []),
    (["web.*"], [".*views"], [], ["web.clicks"]),
    # internal topics
    (["_.*"], [], [], []),
    (["_?.*"], [], [], ["orders", "orders-test", "web.clicks", "web.views"]),
    (["_schemas", "_audi."], [], [], ["_schemas"]),
    (["_schemas", "_audit"], ["_a.*"], [], ["_schemas"]),
    (["__consumer_offsets", "_mirror_positions"], [], ["add __consumer_offsets"], []),
    # the latest change decides
    (["orders"], [], ["add web.*"], ["orders", "web.clicks", "web.views"]),
    (["orders"], [], ["add web.*", "remove web.views"], ["orders", "web.clicks"]),
    (["orders"], [], ["remove web.views", "add web.*"], ["orders", "web.clicks", "web.views"]),
    ([".*"], [], ["remove .*"], []),
    ([".*"], [], ["remove .*", "add orders"], ["orders"]),
    # what the file excludes cannot be added
    (["web.*"], [".*-test"], ["add orders.*"], ["orders", "web.clicks", "web.views"]),
    # internal topics are added by exact names, and removed by any pattern
    ([".*"], [], ["remove .*", "add _.*", "add _schemas"], ["_schemas"]),
    (["_schemas"], [], ["remove _.*"], []),
    (["_schemas"], [], ["remove .*", "add .*"], ["orders", "orders-test", "web.clicks", "web.views"]),
]


@pytest.mark.parametrize(("include", "exclude", "changes", "selected"), RULES)
def test_the_rules(include: list[str], exclude: list[str], changes: list[str], selected: list[str]) -> None:
    found = selection(include, exclude)
    for words in changes:
        found = found.with_change(change(words))
    assert list(found.of(TOPICS)) == selected


def test_a_change_reports_what_comes_and_goes() -> None:
    before = selection(["orders.*"], [])
    after = before.with_change(change("add web.*"))
    assert before.difference(after, TOPICS) == Difference(("web.clicks", "web.views"), ())
    assert after.difference(after.with_change(change("remove .*s")), TOPICS) == Difference((), ("orders", "web.clicks", "web.views"))
    assert after.difference(after.with_change(change("remove nothing")), TOPICS) == Difference((), ())


def test_changes_that_are_repeated_are_kept_once() -> None:
    found = selection(["orders"], [])
    for _ in range(100):
        found = found.with_change(change("remove web.*")).with_change(change("add web.*"))
    assert [(each.action, each.pattern.pattern) for each in found.changes] == [(Action.REMOVE, "web.*"), (Action.ADD, "web.*")]


NAMES = st.sampled_from([*TOPICS, "a", "ab", "b", "_a", "_ab", "a.internal"])
PATTERNS = st.sampled_from([".*", "_.*", "_?.*", "a", "a.*", ".b", "_a", "_ab", "[ab]+", ".*internal", "__.*", *TOPICS])
LISTS = st.lists(PATTERNS, max_size=3)
CHANGES = st.lists(st.tuples(st.sampled_from(Action), PATTERNS), max_size=8)


def obviously(include: list[str], exclude: list[str], changes: list[tuple[Action, str]], topic: str) -> bool:
    """Every change is kept, and each is applied to the topic in turn."""

    def brings(pattern: str) -> bool:
        return topic == pattern or (not topic.startswith("_") and re.fullmatch(pattern, topic) is not None)

    selected = any(map(brings, include))
    for action, pattern in changes:
        if action is Action.ADD and brings(pattern):
            selected = True
        if action is Action.REMOVE and re.fullmatch(pattern, topic):
            selected = False
    return selected and topic not in NEVER and not any(re.fullmatch(each, topic) for each in exclude)


@given(LISTS, LISTS, CHANGES, st.sets(NAMES))
def test_changes_one_after_the_other_are_the_obvious_selection(
    include: list[str], exclude: list[str], changes: list[tuple[Action, str]], topics: set[str]
) -> None:
    found = selection(include, exclude)
    for action, pattern in changes:
        found = found.with_change(Change(action, parse_pattern(pattern)))
    assert list(found.of(topics)) == sorted(topic for topic in topics if obviously(include, exclude, changes, topic))
    assert len({(each.action, each.pattern) for each in found.changes}) == len(found.changes)


@given(LISTS, LISTS, CHANGES, st.tuples(st.sampled_from(Action), PATTERNS), st.sets(NAMES))
def test_what_a_change_reports_is_what_it_changes(
    include: list[str], exclude: list[str], changes: list[tuple[Action, str]], last: tuple[Action, str], topics: set[str]
) -> None:
    """Claim: those before, with what comes and without what goes, are those after; an addition takes none, a removal brings none."""
    before = selection(include, exclude)
    for action, pattern in changes:
        before = before.with_change(Change(action, parse_pattern(pattern)))
    after = before.with_change(Change(last[0], parse_pattern(last[1])))
    found = before.difference(after, topics)
    come, go = set(found.come), set(found.go)
    assert (set(before.of(topics)) | come) - go == set(after.of(topics))
    assert not come & set(before.of(topics))
    assert go <= set(before.of(topics))
    assert (go if last[0] is Action.ADD else come) == set()


@given(LISTS, LISTS, CHANGES, CHANGES, st.sets(NAMES))
def test_differences_back_are_those_there_the_other_way(
    include: list[str], exclude: list[str], one: list[tuple[Action, str]], other: list[tuple[Action, str]], topics: set[str]
) -> None:
    base = selection(include, exclude)
    left, right = base, base
    for action, pattern in one:
        left = left.with_change(Change(action, parse_pattern(pattern)))
    for action, pattern in other:
        right = right.with_change(Change(action, parse_pattern(pattern)))
    there, back = left.difference(right, topics), right.difference(left, topics)
    assert (there.come, there.go) == (back.go, back.come)
