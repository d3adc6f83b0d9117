"""What was published is seen from the log alone: whatever lines the topic has, the next run adds exactly the others (I1)."""

import json
import random
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.audit.follow import read_audit
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tree import TierTree
from moldau.client import Producer
from moldau.client.cluster import Cluster
from moldau.demo.file_input import open_input
from moldau.demo.flights import FLIGHTS, JULY_MS, FlightsInput
from moldau.demo.host import HostResult, Orders, publish
from moldau.demo.inputs import InputEvent
from moldau.demo.publish import ForeignRecordError, PublishError, as_bits, ensure_topics, lines_there
from moldau.model.identity import TopicPartition
from moldau.registry.client import RegistryClient
from moldau.testing.broker import Broker
from moldau.tracking.audit_record import PRODUCER_TIER
from moldau.tracking.consumer import TrackedConsumer
from moldau.tracking.schemas.event_schema import event_schema
from support.sizes import sized

pytestmark = pytest.mark.system

PARTITIONS = 4
LINES = 60
BAD = frozenset({7, 30, 31})


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events of a few keys and of none, and some bad lines."""
    draw = random.Random(7)
    path = tmp_path_factory.mktemp("publish") / "events.jsonl"
    lines = [f"torn {n}" if n in BAD else json.dumps({"n": n, "who": draw.choice(["a", "b", None])}) for n in range(1, LINES + 1)]
    path.write_text("\n".join(lines))
    return path


def orders(broker: Broker, topic: str, events: Path, host: int, there: str, **more: bool) -> Orders:
    given: dict[str, Any] = {"plant": False, "planted": False, **more}
    return Orders(broker.bootstrap_servers, broker.registry_url, topic, host, str(events), "who", None, "none", there, **given)


def there(broker: Broker, topic: str, events: Path) -> list[int]:
    source = open_input(events, "who", None)
    found: list[int] = lines_there(broker.bootstrap_servers, broker.registry_url, topic, event_schema(source.schemas()[0]).text).tolist()
    return found


def publish_all(broker: Broker, topic: str, events: Path, known: list[int]) -> list[HostResult]:
    bits = as_bits(np.array(known, np.int64))
    return [publish(orders(broker, topic, events, host, bits)) for host in range(3)]


@settings(max_examples=sized(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(1, LINES)))
def test_any_lines_that_are_there_are_completed(broker: Broker, events: Path, landed: set[int]) -> None:
    """First only some lines arrive, of whatever partition and order; then a second run, and a third that has nothing to do."""
    topic = broker.unique_topic("publish")
    ensure_topics(broker.bootstrap_servers, topic, PARTITIONS)
    ensure_topics(broker.bootstrap_servers, topic, PARTITIONS)
    assert there(broker, topic, events) == []
    publish_all(broker, topic, events, [line for line in range(1, LINES + 1) if line not in landed])
    assert there(broker, topic, events) == sorted(landed)
    done = publish_all(broker, topic, events, sorted(landed))
    assert sum(each.sent for each in done) == LINES - len(landed)
    assert sum(each.read for each in done) == LINES
    assert sorted(line for each in done for line, _ in each.bad_shown) == sorted(BAD)
    everything = list(range(1, LINES + 1))
    assert there(broker, topic, events) == everything
    assert sum(each.sent for each in publish_all(broker, topic, events, everything)) == 0
    with Cluster(broker.bootstrap_servers) as cluster:
        counts = read_audit(cluster).counts[PRODUCER_TIER]
        ends = sum(end.offset for end in cluster.list_offsets(dict.fromkeys(partitions_of(cluster, topic), -1)).values())
    assert ends == LINES, "each once"
    by_host = Counter[str]()
    for key, told in counts.items():
        if key.topic == topic:
            by_host[key.host] += told.count.count
    assert sum(by_host.values()) == LINES - len(BAD), "bad lines are no tracked events"
    assert set(by_host) <= {"events-1", "events-2", "events-3"}


def partitions_of(cluster: Cluster, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, each.partition) for each in cluster.topic(topic).partitions]


def test_a_planted_event_is_counted_and_never_sent(broker: Broker, events: Path) -> None:
    """Also when the host is started again: it is left out, and not counted twice."""
    topic = broker.unique_topic("planted")
    ensure_topics(broker.bootstrap_servers, topic, PARTITIONS)
    done = publish(orders(broker, topic, events, 2, "", plant=True))
    assert (done.planted_line, done.read, done.sent) == (32, 20, 19)
    known = there(broker, topic, events)
    assert known == [line for line in range(2, LINES + 1, 3) if line != 32]
    again = publish(orders(broker, topic, events, 2, as_bits(np.array(known)), plant=True, planted=True))
    assert (again.planted_line, again.sent) == (32, 0)
    with Cluster(broker.bootstrap_servers) as cluster:
        found = read_audit(cluster)
    report = reconcile(found, Rules(now_ms=1 << 45, tree=TierTree.chain((PRODUCER_TIER, "nobody")), grace_ms=0, topics={topic}))
    tracked = [line for line in known if line not in BAD]
    assert sum(pair.upper.count for pair in report.pairs) == len(tracked) + 1
    assert all(found.instances[line.instance].final for pair in report.pairs for line in pair.sources)


def test_from_july_on_departures_have_a_second_schema(broker: Broker) -> None:
    """The registry has found it compatible; and each event is read with the one it was written with. All but the turn of June is there."""
    source = FlightsInput()
    departures = [event for event in source.events(0) if isinstance(event, InputEvent)]
    july = next(number for number, event in enumerate(departures) if source.version(event))
    wanted = [event.line for event in departures[july - 10 : july + 10]]
    others = np.setdiff1d(np.arange(2, FLIGHTS + 2), wanted)
    topic = broker.unique_topic("departures")
    ensure_topics(broker.bootstrap_servers, topic, PARTITIONS)
    where = (broker.bootstrap_servers, broker.registry_url, topic)
    given = Orders(*where, 0, None, None, None, "none", as_bits(others), plant=False, planted=False)
    assert publish(given).sent == 20
    with RegistryClient(broker.registry_url) as registry:
        assert registry.versions(f"{topic}-value") == [1, 2]
        assert registry.compatibility(f"{topic}-value") == "BACKWARD"
    with closing(TrackedConsumer(broker.bootstrap_servers, broker.registry_url, group_id=topic, topics=[topic])) as consumer:
        events = [event for _, event in zip(range(20), consumer, strict=False)]
    assert sorted(event.value["line"] for event in events) == sorted(wanted)
    assert {("status" in event.value, event.header.time_ms >= JULY_MS) for event in events} == {(True, True), (False, False)}
    assert {(event.header.datacenter, event.header.service, event.header.host) for event in events} == {("ewr", "departures", "ewr-1")}


def test_late_departures_are_published_by_themselves(broker: Broker) -> None:
    """Claim: a host that publishes what is not late and then what is has published everything, each once."""
    source = FlightsInput()
    first = list(islice(source.events(0), 40))
    late = {event.line for event in first if isinstance(event, InputEvent) and source.late(event)}
    others = np.setdiff1d(np.arange(2, FLIGHTS + 2), [event.line for event in first])
    topic = broker.unique_topic("departures")
    ensure_topics(broker.bootstrap_servers, topic, PARTITIONS)
    where = (broker.bootstrap_servers, broker.registry_url, topic)
    given = Orders(*where, 0, None, None, None, "none", as_bits(others), plant=False, planted=False, late=False)
    in_time, afterwards = publish(given), publish(replace(given, late=True))
    assert (in_time.sent, afterwards.sent) == (40 - len(late), len(late))
    schema = event_schema(source.schemas()[-1]).text
    assert set(lines_there(broker.bootstrap_servers, broker.registry_url, topic, schema)) == {event.line for event in first}


def test_a_topic_that_is_not_ours_is_left_alone(broker: Broker, events: Path) -> None:
    topic = broker.create_topic(broker.unique_topic("foreign"), PARTITIONS)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"foreign", partition=2)
    with pytest.raises(ForeignRecordError, match=f"{topic}-2: the record at offset 0 was not published by the demonstration"):
        there(broker, topic, events)
    with pytest.raises(PublishError, match="has 4 partitions, not 5; use another --dir"):
        ensure_topics(broker.bootstrap_servers, topic, 5)
