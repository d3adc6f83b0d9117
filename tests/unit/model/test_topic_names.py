"""Patterns do not match internal topics, wherever a pattern is taken, unless they begin with an underscore themselves."""

import re
from collections.abc import Callable, Mapping, Sequence

import pytest

from moldau.audit.rules import is_counted
from moldau.client.settings import hiding_settings
from moldau.lake.loading.job import LoadJobs
from moldau.lake.reading.cluster_log import KnownTopic
from moldau.lake.reading.options import OptionScope, parse_options
from moldau.lake.reading.planning import StreamPlanner, partitions_of
from moldau.model.identity import TopicPartition
from moldau.model.topic_names import is_internal, matches

TOPICS = ("__consumer_offsets", "_audit", "_schemas", "_spark_commits", "a_b", "orders")
CASES = [
    (".*", ["a_b", "orders"]),
    (".*s", ["orders"]),
    ("_.*", ["__consumer_offsets", "_audit", "_schemas", "_spark_commits"]),
    ("_schemas", ["_schemas"]),
    ("_?.*", list(TOPICS)),
    ("(_schemas|orders)", ["orders"]),
]


class Brokers:
    """A cluster with these topics, of one partition each."""

    def topics(self, names: Sequence[str] | None) -> Mapping[str, KnownTopic]:
        return {name: KnownTopic(name, 1) for name in (TOPICS if names is None else names)}

    def partition_counts(self, topics: Sequence[str] | None) -> Mapping[str, int]:
        return dict.fromkeys(self.topics(topics), 1)

    def offsets(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(times, 0)


def by_rule(pattern: str) -> list[str]:
    return [topic for topic in TOPICS if matches(re.compile(pattern), topic)]


def by_load(pattern: str) -> list[str]:
    return [job.topic for job in LoadJobs("n", "h:1", "/lake", pattern=pattern, registry="http://r").jobs(TOPICS)]


def by_read(pattern: str) -> list[str]:
    options = parse_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": pattern})
    return [partition.topic for partition in partitions_of(options, Brokers())]


def by_stream(pattern: str) -> list[str]:
    options = parse_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": pattern}, OptionScope.STREAM)
    return sorted({partition.topic for partition in StreamPlanner(options, Brokers()).initial().offsets})


@pytest.mark.parametrize("taken_by", [by_rule, by_load, by_read, by_stream])
@pytest.mark.parametrize(("pattern", "found"), CASES)
def test_internal_topics_are_matched_only_by_patterns_that_begin_with_an_underscore(
    pattern: str, found: list[str], taken_by: Callable[[str], list[str]]
) -> None:
    assert taken_by(pattern) == found


@pytest.mark.parametrize(("pattern", "found"), CASES)
def test_an_auditor_goes_by_the_same_rule_and_never_counts_its_own_topic(pattern: str, found: list[str]) -> None:
    assert [topic for topic in TOPICS if is_counted(topic, re.compile(pattern))] == [topic for topic in found if topic != "_audit"]
    assert [topic for topic in TOPICS if is_counted(topic, None)] == ["a_b", "orders"]


def test_internal_is_what_begins_with_an_underscore() -> None:
    assert [topic for topic in TOPICS if is_internal(topic)] == ["__consumer_offsets", "_audit", "_schemas", "_spark_commits"]


def test_a_consumer_hides_them_where_it_subscribes_to_patterns_and_only_there() -> None:
    assert hiding_settings(["orders", "_schemas"]) == {}
    assert hiding_settings(["^.*", "orders"]) == {"topic.blacklist": "^_"}
    assert hiding_settings(["^_.*", "^_?.*"]) == {}
    with pytest.raises(ValueError, match=r"pattern \^\.\* leaves out internal topics, which _schemas names"):
        hiding_settings(["^.*", "_schemas"])
