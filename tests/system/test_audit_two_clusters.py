"""What a tier of another cluster lacks is named out of that cluster's log: an edge cluster's, and a central one's with copies."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.audit.events import count_each
from moldau.cli.application import application
from moldau.client import Producer
from moldau.client.cluster import Cluster
from moldau.client.fetched_batches import VisibleBatches, checked_batches
from moldau.client.partition_requests import LATEST, READ_COMMITTED, FetchLimits
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.testing import Broker
from moldau.tracking.audit_record import AUDIT_PARTITIONS, AUDIT_TOPIC, AuditRecord, ensure_audit_topic
from support.audit_events import NOON, Host

pytestmark = pytest.mark.system

TOPIC = "departures"
EWR = Host("ewr-1", "ewr", instance=b"inst-ewr")
EVENTS = [EWR.event(number, NOON + 1000 * number) for number in range(100)]
AT_EDGE = EVENTS[:7] + EVENTS[8:]
AT_CENTRE = AT_EDGE[:10] + AT_EDGE[12:]
LIMITS = FetchLimits(max_wait_ms=100, max_bytes=8 << 20, partition_max_bytes=8 << 20, isolation_level=READ_COMMITTED)


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Broker, Broker]]:
    """Event 7 never reached the edge, and of what did the events 11 and 12 never reached the centre, which has the counts of all tiers."""
    with Broker() as edge, Broker() as central:
        for broker, values in ((edge, AT_EDGE), (central, AT_CENTRE)):
            broker.create_topic(TOPIC)
            ensure_audit_topic(broker.bootstrap_servers)
            with Producer(broker.bootstrap_servers) as producer:
                for value in values:
                    producer.send(TOPIC, value)
        with Producer(edge.bootstrap_servers) as producer:
            for key, count in count_each(TOPIC, EVENTS).counts().items():
                record = AuditRecord.of_counts("producer", key, count, time_ms=1)
                producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key)
        Auditor(edge.bootstrap_servers, AuditorOptions("edge")).run(once=True)
        copy_audit(edge, central)
        Auditor(central.bootstrap_servers, AuditorOptions("central")).run(once=True)
        yield edge, central


def copy_audit(source: Broker, target: Broker) -> None:
    """What a mirror does with the committed records of the audit topic."""
    with Cluster(source.bootstrap_servers) as cluster, Producer(target.bootstrap_servers) as producer:
        for where in (TopicPartition(AUDIT_TOPIC, number) for number in range(AUDIT_PARTITIONS)):
            position, end = 0, cluster.list_offsets({where: LATEST})[where].offset
            while position < end:
                fetched = cluster.fetch(AUDIT_TOPIC, where.partition, position, LIMITS)
                visible = VisibleBatches(fetched.aborted)
                for header, batch in checked_batches(where, fetched, position):
                    if visible.shows(header, batch):
                        for record in iterate(batch, max_decompressed_bytes=1 << 20):
                            producer.send(AUDIT_TOPIC, record.value, key=record.key)
                    position = header.last_offset + 1


def report(central: Broker, *more: str) -> Result:
    arguments = ["audit", "report", "--missing", "--grace", "0", "--tiers", "producer,edge,central"]
    return CliRunner().invoke(application, [*arguments, "--bootstrap", central.bootstrap_servers, *more])


def missing(done: Result) -> list[str]:
    return [line.partition("Z, ")[2] for line in done.output.splitlines() if line.startswith("missing: ")]


def line(pair: str, number: int) -> str:
    return f"{pair}, ewr-1: {EWR.instance.hex()}{number:016x}"


def test_each_tier_lacks_what_its_own_cluster_does_not_have(clusters: tuple[Broker, Broker]) -> None:
    edge, central = clusters
    done = report(central, "--tier-bootstrap", f"edge={edge.bootstrap_servers}", "--tier-bootstrap", f"central={central.bootstrap_servers}")
    assert missing(done) == [line("producer > edge", 7), line("edge > central", 11), line("edge > central", 12)], done.output


def test_a_tier_without_a_cluster_is_asked_for(clusters: tuple[Broker, Broker]) -> None:
    edge, central = clusters
    lines = missing(report(central, "--tier-bootstrap", f"edge={edge.bootstrap_servers}"))
    assert lines[0] == line("producer > edge", 7)
    assert lines[1].endswith("where is tier central? --table central=DIR names its tables, --tier-bootstrap central=HOST:PORT its cluster")


def test_a_cluster_without_the_topic_is_named(clusters: tuple[Broker, Broker]) -> None:
    _, central = clusters
    with Broker() as other:
        done = report(central, "--tier-bootstrap", f"edge={other.bootstrap_servers}")
        assert done.exit_code == 1
        assert f"Error: tier edge at {other.bootstrap_servers}: " in done.output
        assert TOPIC in done.output
    done = report(central, "--tier-bootstrap", f"egde={central.bootstrap_servers}")
    assert (done.exit_code, done.output.splitlines()[-1]) == (
        2, "Error: Invalid value for --tier-bootstrap: tier egde is not compared, only producer, edge, central are, did you mean 'edge'?"
    )  # fmt: skip
