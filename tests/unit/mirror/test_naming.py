"""What topics of sources are called in the target, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.mirror.naming import Naming, SourceTopic, TargetNameError, TopicNames
from moldau.model.topic_names import LENGTH_MAX, is_allowed

KEPT = TopicNames(Naming.TOPIC, ("east", "west"))
PREFIXED = TopicNames(Naming.SOURCE_TOPIC, ("east", "west", "east-2"))


def test_topics_of_one_name_of_several_sources_become_one() -> None:
    assert {KEPT.target(SourceTopic(source, "orders")) for source in KEPT.sources} == {"orders"}
    assert KEPT.origins("orders") == (SourceTopic("east", "orders"), SourceTopic("west", "orders"))


def test_with_the_source_before_it_each_topic_has_its_own() -> None:
    assert PREFIXED.target(SourceTopic("east", "orders")) == "east.orders"
    assert PREFIXED.origins("east.orders") == (SourceTopic("east", "orders"),)


BACK = [
    ("east-2.orders", [SourceTopic("east-2", "orders")]),
    ("east.west.orders", [SourceTopic("east", "west.orders")]),
    ("north.orders", []),
    ("orders", []),
    ("east", []),
    ("east.", []),
    ("east..", []),
    ("east...", []),
    ("east....", [SourceTopic("east", "...")]),
    ("east.__consumer_offsets", [SourceTopic("east", "__consumer_offsets")]),
]


@pytest.mark.parametrize(("target", "origins"), BACK)
def test_the_first_dot_ends_the_source(target: str, origins: list[SourceTopic]) -> None:
    assert list(PREFIXED.origins(target)) == origins


def test_a_name_that_becomes_too_long_is_refused_with_its_length() -> None:
    longest = "t" * (LENGTH_MAX - len("east."))
    assert PREFIXED.target(SourceTopic("east", longest)) == f"east.{longest}"
    with pytest.raises(
        TargetNameError, match=r"^topic t+ of source east cannot be mirrored: its name in the target has 250 characters, east\.t+; a name"
    ):
        PREFIXED.target(SourceTopic("east", longest + "t"))
    assert KEPT.target(SourceTopic("east", "t" * LENGTH_MAX)) == "t" * LENGTH_MAX


SOURCES = st.lists(st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,9}", fullmatch=True), min_size=1, max_size=4, unique=True)
TOPICS = st.text("ab._-", min_size=1, max_size=LENGTH_MAX).filter(is_allowed)


@given(st.sampled_from(Naming), SOURCES, TOPICS, st.data())
def test_there_and_back(naming: Naming, sources: list[str], topic: str, data: st.DataObject) -> None:
    """Claim: a topic is among the origins of its target, with the source before it the only one; names are valid or refused."""
    names = TopicNames(naming, tuple(sources))
    origin = SourceTopic(data.draw(st.sampled_from(sources)), topic)
    try:
        target = names.target(origin)
    except TargetNameError:
        assert len(topic) + len(origin.source) + 1 > LENGTH_MAX
        return
    assert is_allowed(target)
    assert origin in names.origins(target)
    assert all(names.target(each) == target for each in names.origins(target))
    assert naming is Naming.TOPIC or names.origins(target) == (origin,)
