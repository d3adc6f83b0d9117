"""`moldau serve --audit`: an auditor in the broker's process counts as one of its own does, ends before the broker, and never with it."""

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.audit.events import count_each
from moldau.audit.follow import read_audit
from moldau.cli.application import application
from moldau.client import Producer
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.tracking.clock import now_ms
from support.audit_events import NOON, Host
from support.console import MOLDAU
from support.server import ServerProcess

pytestmark = pytest.mark.system

TOPIC = "departures"
LIMIT_S = 60.0
AGO_MS = 5_120
"""So old the records are when they are produced; the least latency of a bucket."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", arguments=["--audit", "local", "--metrics", "127.0.0.1:0"]) as server:
        yield server


def send(server: ServerProcess, count: int) -> list[bytes]:
    """Events of 2013, in records of some seconds ago, into a topic that is new."""
    with Cluster(server.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, 2)
    values = [Host().event(number, NOON) for number in range(count)]
    with Producer(server.bootstrap) as producer:
        for value in values:
            producer.send(TOPIC, value, timestamp=now_ms() - AGO_MS)
    return values


def metrics(server: ServerProcess) -> dict[tuple[str, str], float]:
    """The auditor's samples, by name and quantile."""
    url = re.search(r"metrics at (\S+)", "".join(server.output))
    assert url is not None
    text = urllib.request.urlopen(url[1], timeout=LIMIT_S).read().decode()
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples if sample.name.startswith("moldau_audit")]
    assert {sample.labels["tier"] for sample in samples} == {"local"}
    return {(sample.name, sample.labels.get("quantile", "")): sample.value for sample in samples}


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.2)


def test_it_counts_shows_latencies_and_publishes_before_the_broker_stops(server: ServerProcess) -> None:
    """Claim: what it has counted when the process is asked to stop is published: the next start has all of it in the audit topic. Latencies
    are from the times of the records, however old the events are."""
    values = send(server, 300)
    wait_for(lambda: metrics(server)["moldau_audit_published_total", ""] >= 300, "the counts are published")
    found = metrics(server)
    assert (found["moldau_audit_running", ""], found["moldau_audit_partitions", ""]) == (1, 2)
    half, nearly_all = (found["moldau_audit_latency_seconds", share] for share in ("0.5", "0.99"))
    assert AGO_MS / 1000 <= half <= nearly_all < AGO_MS / 1000 + LIMIT_S
    with Producer(server.bootstrap) as producer:
        more = [Host().event(1_000 + number, now_ms()) for number in range(50)]
        for value in more:
            producer.send(TOPIC, value)
    wait_for(lambda: metrics(server)["moldau_audit_records_total", ""] >= 350, "they are counted")
    assert server.stop() == 0
    log = "".join(server.output)
    assert log.index("stopping") < log.rindex("counts published: tier=local") < log.rindex("stopped"), log
    server.arguments = []
    server.start()
    with Cluster(server.bootstrap) as cluster:
        counted = read_audit(cluster)
    assert {key: entry.count for key, entry in counted.counts["local"].items()} == count_each(TOPIC, values + more).counts()
    assert sum(each.total for each in counted.latencies.values()) == 350
    done = CliRunner().invoke(
        application, ["audit", "report", "--tiers", "local,lake", "--only", "lake=x", "--json", "-b", server.bootstrap]
    )
    ((_, whole),) = [(each["tier"], each) for each in json.loads(done.stdout)["latencies"] if each["window_start_ms"] is None]
    assert (whole["count"], whole["p99_ms"] >= AGO_MS) == (350, True)


def test_what_ends_it_does_not_end_the_broker(server: ServerProcess) -> None:
    """Claim: another auditor of the tier takes over: the one beside the broker ends, which is logged and shown, and the broker serves."""
    send(server, 10)
    wait_for(lambda: metrics(server)["moldau_audit_records_total", ""] >= 10, "they are counted")
    Auditor(server.bootstrap, AuditorOptions("local")).run(once=True)
    wait_for(lambda: metrics(server)["moldau_audit_running", ""] == 0, "it notices that it was fenced")
    ended = "auditor ended, the broker continues: tier=local reason=another auditor of this tier has taken over"
    wait_for(lambda: ended in "".join(server.output), "it is logged")
    with Producer(server.bootstrap) as producer:
        producer.send(TOPIC, b"x").result()
    assert server.stop() == 0


def test_an_auditor_of_its_own_has_a_page_of_metrics(tmp_path: Path) -> None:
    """Claim: until it ends; a port that cannot be had is one line and exit code 1."""
    with ServerProcess(tmp_path / "data") as server:
        send(server, 20)
        command = [MOLDAU, "audit", "run", "--tier", "local", "--interval", "0.5", "--metrics", "127.0.0.1:0", "-b", server.bootstrap]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert process.stdout is not None
            server.output = [process.stdout.readline()]
            wait_for(lambda: metrics(server)["moldau_audit_published_total", ""] == 20, "they are counted")
            found = metrics(server)
            assert (found["moldau_audit_running", ""], found["moldau_audit_latency_seconds", "0.5"] >= AGO_MS / 1000) == (1, True)
            taken = urlsplit(re.findall(r"metrics at (\S+)", server.output[0])[0]).netloc
            done = CliRunner().invoke(application, ["audit", "run", "--tier", "other", "--metrics", taken, "-b", server.bootstrap])
            assert (done.exit_code, done.output[:38]) == (1, "Error: cannot serve metrics: address a")
        finally:
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, rest.splitlines()[-1].partition(" in ")[0]) == (0, "20 records counted")
