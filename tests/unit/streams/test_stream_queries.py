"""Queries run in the order in which they feed each other. Spark is not started: of a plan its options are pretended."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.streams import plans
from moldau.streams.plans import topics_read
from moldau.streams.queries import JobQuery, stages


@pytest.fixture(autouse=True)
def _plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of a DataFrame is a list with the options of each of its sources."""

    def node(options: Mapping[str, str]) -> Any:
        return SimpleNamespace(nodeName=lambda: "StreamingRelationV2", extraOptions=lambda: options)

    monkeypatch.setattr(plans, "_plan", lambda frame: frame)
    monkeypatch.setattr(plans, "_nodes", lambda frame: map(node, frame))


def query(name: str, reads: str, *writes: str, late: str | None = None) -> JobQuery:
    """Of a DataFrame that reads these topics, separated by blanks."""

    def output(topic: str) -> Any:
        return SimpleNamespace(name=topic, place=f"topic {topic}")

    of_late: Any = () if late is None else (SimpleNamespace(output=output(late)),)
    return JobQuery(name, [{"subscribe": each} for each in reads.split()], tuple(map(output, writes)), "append", "", of_late)


def names(*queries: JobQuery) -> list[list[str]]:
    return [[each.name for each in stage] for stage in stages(queries)]


def test_queries_that_feed_others_come_first() -> None:
    """By the topics of their outputs, those of late rows too."""
    last, first, between = query("last", "b", "c"), query("first", "in", "a"), query("between", "in a", "b", "d")
    assert names(last, first, between) == [["first"], ["between"], ["last"]]
    assert names(first, query("other", "in", "x")) == [["first", "other"]]
    assert names(query("reader", "late", "corrections"), query("writer", "flights", "counts", late="late")) == [["writer"], ["reader"]]


def test_queries_in_a_circle_run_together() -> None:
    """And no others with them: those that a circle feeds come after it, and those that feed it before."""
    first, onward, back, after = query("first", "in", "a"), query("onward", "a q", "p"), query("back", "p", "q"), query("after", "q", "z")
    assert names(after, back, onward, first) == [["first"], ["back", "onward"], ["after"]]
    own, reader = query("own", "in x", "x"), query("reader", "x", "y")
    assert names(reader, own) == [["own"], ["reader"]], "what a query feeds itself"


@pytest.mark.parametrize("topic", ["moldau", "topics", "subscribe"])
def test_a_topic_may_have_any_name(topic: str) -> None:
    """Also that of a word by which an input is described."""
    assert names(query("first", "in", topic), query("other", "in", "x")) == [["first", "other"]]
    assert names(query("last", topic, "x"), query("first", "in", topic)) == [["first"], ["last"]]


def test_topics_by_each_option_of_a_source() -> None:
    every = {"a", "b", "c", "ab", "_a"}
    assert topics_read([{"subscribe": "a, c"}], every) == {"a", "c"}
    assert topics_read([{"subscribePattern": ".*b|.?a"}], every) == {"a", "b", "ab"}
    assert topics_read([{"assign": '{"b": [0, 1]}'}], every) == {"b"}
    assert topics_read([{"rate": "1"}, {"subscribe": "b"}], every) == {"b"}
