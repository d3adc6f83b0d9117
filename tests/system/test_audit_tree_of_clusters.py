"""Two local clusters under an aggregate: the report names the cluster that lost events, by its tree, wherever it reads the counts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.audit.events import count_each
from moldau.cli.application import application
from moldau.client import Producer
from moldau.testing import Broker
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, ensure_audit_topic
from moldau.tracking.clock import now_ms
from moldau.tracking.counts import NOTHING, CountKey
from support.audit_events import NOON, Host
from system.test_audit_two_clusters import copy_audit

pytestmark = pytest.mark.system

TOPIC = "departures"
HOSTS = {"ewr": Host("ewr-1", "ewr", instance=b"inst-ewr"), "jfk": Host("jfk-1", "jfk", instance=b"inst-jfk")}
EVENTS = {name: [host.event(number, NOON + 1000 * number) for number in range(100)] for name, host in HOSTS.items()}
AT_JFK = [*EVENTS["jfk"][:7], *EVENTS["jfk"][8:]]
"""Event 7 never reached its local cluster."""
AT_AGGREGATE = [*EVENTS["ewr"][:11], *EVENTS["ewr"][12:], *AT_JFK]
"""Event 11 of Newark was lost on the way from its local cluster."""


class Clusters(NamedTuple):
    """All of them, and a file with their tree."""

    ewr: Broker
    jfk: Broker
    aggregate: Broker
    file: Path


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with Broker() as ewr, Broker() as jfk, Broker() as aggregate:
        for broker, values in ((ewr, EVENTS["ewr"]), (jfk, AT_JFK), (aggregate, AT_AGGREGATE)):
            broker.create_topic(TOPIC)
            ensure_audit_topic(broker.bootstrap_servers)
            with Producer(broker.bootstrap_servers) as producer:
                for value in values:
                    producer.send(TOPIC, value)
        for name, broker in (("ewr", ewr), ("jfk", jfk)):
            publish_counts(broker, HOSTS[name], EVENTS[name])
        for tier, broker in (("ewr.local", ewr), ("jfk.local", jfk), ("aggregate", aggregate)):
            Auditor(broker.bootstrap_servers, AuditorOptions(tier)).run(once=True)
        file = tmp_path_factory.mktemp("tree") / "tiers.toml"
        file.write_text(
            f"""
            [tiers."ewr.local"]
            bootstrap = "{ewr.bootstrap_servers}"

            [tiers."jfk.local"]
            bootstrap = "{jfk.bootstrap_servers}"

            [tiers.aggregate]
            from = ["ewr.local", "jfk.local"]
            bootstrap = "{aggregate.bootstrap_servers}"
            """
        )
        yield Clusters(ewr, jfk, aggregate, file)


def publish_counts(broker: Broker, host: Host, values: list[bytes]) -> None:
    """What a producer instance publishes in its life."""
    whole = CountKey("", 0, host.datacenter, host.service, host.name, host.instance.hex())
    ((key, count),) = count_each(TOPIC, values).counts().items()
    records = [
        AuditRecord("open", "01" * 8 + host.instance.hex(), now_ms(), "producer", whole, NOTHING),
        AuditRecord.of_counts("producer", key, count, time_ms=now_ms()),
        AuditRecord("close", "02" * 8 + host.instance.hex(), now_ms(), "producer", whole, count),
    ]
    with Producer(broker.bootstrap_servers) as producer:
        for record in records:
            producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key)


def report(*arguments: object) -> Result:
    return CliRunner().invoke(application, ["audit", "report", "--grace", "0", *map(str, arguments)])


def faults(document: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Which cluster lost what of whom: the lower tier, the one that had it, the host, and the note."""
    return [
        (window["lower_tier"], *source["upper_tiers"], source["host"], source["note"])
        for window in document["windows"]
        for source in window["sources"]
    ]


LOST = [("jfk.local", "producer", "jfk-1", "1 of 100 missing"), ("aggregate", "ewr.local", "ewr-1", "1 of 100 missing")]


def test_the_cluster_that_lost_events_is_named(clusters: Clusters) -> None:
    """Claim: counts are read from each cluster of the file; both losses are traced to cluster, topic, window, service and host."""
    done = report("--tree", clusters.file, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, faults(document)) == (4, LOST), done.output
    assert [(each["upper_tier"], each["lower_tier"], each["verdict"], each["lower"]["count"]) for each in document["topics"]] == [
        ("producer", "ewr.local", "complete", 100),
        ("producer", "jfk.local", "loss", 99),
        ("ewr.local + jfk.local", "aggregate", "loss", 198),
    ]
    text = report("--tree", clusters.file).stdout
    line = next(line for line in text.splitlines() if "ewr.local > aggregate" in line)
    assert line.split()[:10] == [
        TOPIC,
        "2013-01-01T12:00:00Z",
        "ewr.local",
        ">",
        "aggregate",
        "loss",
        "ewr",
        "departures",
        "ewr-1",
        "696e73742d657772",
    ]


def test_the_lost_events_are_named_out_of_the_clusters_of_the_file(clusters: Clusters) -> None:
    lines = [line for line in report("--tree", clusters.file, "--missing").stdout.splitlines() if line.startswith("missing: ")]
    assert [line.partition("Z, ")[2] for line in lines] == [
        f"producer > jfk.local, jfk-1: {HOSTS['jfk'].instance.hex()}{7:016x}",
        f"ewr.local > aggregate, ewr-1: {HOSTS['ewr'].instance.hex()}{11:016x}",
    ]


def test_mirrored_counts_are_the_same(clusters: Clusters, tmp_path: Path) -> None:
    """Claim: with counts mirrored into one topic, twice even, and some of them read from their own cluster too, each record counts once.
    The mirror gives them its own time, so that they are decided when later marks have come by it."""
    with Broker() as centre:
        ensure_audit_topic(centre.bootstrap_servers)
        for _ in range(2):
            for tier, broker in (("ewr.local", clusters.ewr), ("jfk.local", clusters.jfk), ("aggregate", clusters.aggregate)):
                copy_audit(broker, centre)
                Auditor(broker.bootstrap_servers, AuditorOptions(tier)).run(once=True)
        without = "\n".join(line for line in clusters.file.read_text().splitlines() if "bootstrap" not in line)
        (tmp_path / "tiers.toml").write_text(without)
        own, mirrored = (("--bootstrap", broker.bootstrap_servers) for broker in (clusters.aggregate, centre))
        topics = json.loads(report("--tree", clusters.file, "--json").stdout)["topics"]
        for sources in ((tmp_path / "tiers.toml", *mirrored), (tmp_path / "tiers.toml", *own, *mirrored), (clusters.file, *mirrored)):
            document = json.loads(report("--json", "--tree", *sources).stdout)
            assert (faults(document), document["topics"]) == (LOST, topics), sources


def test_a_chain_and_a_tree_at_once_are_refused(clusters: Clusters) -> None:
    done = report("--tree", clusters.file, "--tiers", "producer,ewr.local")
    assert (done.exit_code, done.output.splitlines()[-1]) == (
        2,
        "Error: --tree has the tiers and their order, so --tiers does not go with it",
    )
    done = report("--tree", clusters.file.parent / "none.toml")
    assert (done.exit_code, done.output.splitlines()[-1].replace("'", "").partition("--tree: ")[2]) == (
        2,
        f"{clusters.file.parent / 'none.toml'}: no such file or directory",
    )
