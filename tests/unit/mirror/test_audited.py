"""The topics that a mirror counts for the audit are those that it mirrors, by their names in the target."""

import pytest

from moldau.mirror.audited import audited_topics
from moldau.mirror.plan.file import parse_plan
from moldau.model.toml_table import PlanFileError

FILE = """
name = "m"
mode = "merge"
naming = "{naming}"
sources.east.bootstrap.servers = "a:1"
sources.west.bootstrap.servers = "b:1"
target.bootstrap.servers = "c:1"
audit.tier = "aggregate"
[topics]
"""
NAMES = ["orders", "Orders", "web.clicks", "web.internal", "_schemas", "_audit", "_other", "test-1", "tests"]


@pytest.mark.parametrize(
    "topics",
    [
        'include = [".*"]',
        'include = [".*", "_schemas"]',
        'include = ["orders", "web[.].*"]',
        'include = ["(?i)orders", "web.*|test.*"]\nexclude = ["test-.*", "(?i)WEB[.]I.*"]',
        'include = ["_.*", "_audit"]\nexclude = []',
    ],
)
def test_they_are_those_that_are_selected(topics: str) -> None:
    plan = parse_plan(FILE.format(naming="topic") + topics, "m.toml")
    pattern = audited_topics(plan)
    assert [name for name in NAMES if pattern.fullmatch(name)] == [name for name in NAMES if plan.selection.selects(name)]
    prefixed = audited_topics(parse_plan(FILE.format(naming="source.topic") + topics, "m.toml"))
    for source in ("east", "west", "north"):
        found = [name for name in NAMES if prefixed.fullmatch(f"{source}.{name}")]
        assert found == ([] if source == "north" else [name for name in NAMES if plan.selection.selects(name)])
    assert not any(prefixed.fullmatch(name) for name in NAMES)


def test_patterns_that_do_not_go_into_one_are_refused() -> None:
    text = FILE.format(naming="topic") + 'include = ["(?P<a>x)", "(?P<a>y)"]'
    with pytest.raises(PlanFileError, match=r"m.toml:8: \[audit\] tier: the patterns of \[topics\] do not go into one"):
        parse_plan(text, "m.toml")


def test_counts_cannot_be_published_in_a_copy_of_the_audit_topic() -> None:
    text = FILE.format(naming="topic") + 'include = ["orders", "_audit"]'
    parse_plan(text, "m.toml")
    copy = text.replace("merge", "copy").replace("sources.east", "source").replace('sources.west.bootstrap.servers = "b:1"\n', "")
    with pytest.raises(PlanFileError, match=r"tier: its counts cannot be published: \[topics\] makes _audit of the target a copy"):
        parse_plan(copy.replace('naming = "topic"\n', ""), "m.toml")
