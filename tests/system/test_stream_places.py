"""A generation's topics are like those before, it begins where it was asked to, and readers find its places. Without Spark."""

import pytest
from confluent_kafka import Producer

from moldau.client.admin import Admin, AdminResource, AdminResourceType
from moldau.client.cluster import Cluster
from moldau.streams import output, places
from moldau.streams.errors import StreamError
from moldau.streams.generation_places import Places
from moldau.streams.generations import JobGenerations, OutputPlace, Reprocessing, beside_name, encode_generations
from moldau.streams.operator import StreamOperator
from moldau.streams.outputs import TopicOutput
from moldau.streams.reports import JobReport, JobState, QueryReport, encode_report, generations_key, process_key
from moldau.streams.reprocessing import starts_at
from moldau.streams.state_topic import StateTopic
from moldau.testing.broker import Broker

pytestmark = pytest.mark.system


def report(job: str, *outputs: str) -> JobReport:
    return JobReport(job, "a1", "host", 17, "", 1, 0, 0, JobState.STOPPED, "/data", None, (QueryReport("hours", "r", 1, outputs=outputs),))


def test_topics_are_made_like_those_before(broker: Broker) -> None:
    """Partitions and settings; one that is there already is refused, and so is one without a topic to be like."""
    with Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).create_topic("hours", 3, configs={"cleanup.policy": "compact", "retention.ms": "1000"})
        made = Places(cluster, "hours", [TopicOutput("hours.v2", "")], 1)
        made.must_be_new(2)
        made.make(2)
        made.make(2)
        assert len(cluster.topic("hours.v2").partitions) == 3
        configs = {each.name: each.value for each in Admin(cluster).describe_configs(AdminResource(AdminResourceType.TOPIC, "hours.v2"))}
        assert (configs["cleanup.policy"], configs["retention.ms"]) == ("compact", "1000")
        with pytest.raises(StreamError, match=r"job hours: topic hours\.v2 exists already, and generation 2 would write to it: remove it"):
            made.must_be_new(2)
        with pytest.raises(StreamError, match=r"there is no topic never, and never\.v2 is made like it: moldau topic create never"):
            Places(cluster, "hours", [TopicOutput("never.v2", "")], 1).make(2)
        (begin,) = made.continued(2, whole=False)
        assert begin == OutputPlace("hours", "topic", "hours.v2", 2, {"0": 0, "1": 0, "2": 0})
        (end,) = made.ended(report("hours", "topic hours"), 1)
        assert (end.place, end.end) == ("hours", {"0": 0, "1": 0, "2": 0})


def test_where_a_generation_begins(broker: Broker) -> None:
    """At the first record that is not older, at offsets, at the first record; never after the running generation."""
    topic = broker.create_topic(broker.unique_topic("in"), 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for number in range(10):
        producer.produce(topic, str(number), partition=0, timestamp=1_000_000 + number)
        producer.flush()
    running = {topic: {"0": 8, "1": 0}}
    for start, first in (("earliest", 0), (1_000_004, 4), (1_000_009, 8), (2_000_000, 8), ({topic: {"0": 3}}, 3), ({}, 0)):
        assert starts_at(broker.bootstrap_servers, [topic], start, running) == {topic: {"0": first, "1": 0}}


def test_readers_find_the_places(broker: Broker) -> None:
    """Before a switch those that the job reports, after it the record's; what is not there is named."""
    topic = StateTopic(broker.bootstrap_servers)
    topic.ensure()
    brokers = broker.bootstrap_servers
    topic.write({process_key("found", "a1"): encode_report(report("found", "topic hours", "table /lake/hours"))})
    assert output("found", "/lake/hours", brokers=brokers) == OutputPlace("/lake/hours", "table", "/lake/hours", 1)
    with pytest.raises(StreamError, match="job found has several outputs: name one; they are hours, /lake/hours"):
        output("found", brokers=brokers)
    with pytest.raises(StreamError, match="job found has no output days; they are hours, /lake/hours"):
        output("found", "days", brokers=brokers)
    with pytest.raises(StreamError, match="no process has run a job lost at"):
        output("lost", brokers=brokers)
    old = OutputPlace("hours", "topic", "hours", 1, {}, {"0": 10})
    new = OutputPlace("hours", "topic", "hours.v2", 2, {"0": 7})
    topic.write({generations_key("found"): encode_generations(JobGenerations().switched(2, [old], [new], 1000))})
    assert places("found", brokers=brokers) == [old, new]
    assert output("found", brokers=brokers) == new
    topic.close()


def test_an_order_to_switch_needs_a_process_that_reprocesses(broker: Broker) -> None:
    topic = StateTopic(broker.bootstrap_servers)
    topic.ensure()
    operator = StreamOperator(broker.bootstrap_servers)
    with pytest.raises(StreamError, match="job ordered is not being reprocessed: moldau stream reprocess begins to"):
        operator.switch("ordered", 1)
    known = JobGenerations(last=2, reprocessing=Reprocessing(2, "earliest", {}, 1000))
    name = beside_name("ordered", 2)
    topic.write(
        {
            generations_key("ordered"): encode_generations(known),
            process_key(name, "a1"): encode_report(report(name)),
        }
    )
    with pytest.raises(StreamError, match="job ordered@2 does not run: process 17 on host: stopped; moldau stream reprocess continues"):
        operator.switch("ordered", 1)
    operator.close()
    topic.close()
