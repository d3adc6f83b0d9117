"""The auditor on a real broker: each event counted once, whatever happens to it, and all that comes is found (mission H2)."""

import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.audit.events import count_each
from moldau.audit.follow import read_audit
from moldau.audit.points import POINTS
from moldau.audit.publishing import LostOffsetsError, group_of
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tiers import TierCounts
from moldau.audit.tree import TierTree
from moldau.client import ConsumedMessage, Consumer, Producer
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.failures import FencedError
from moldau.client.groups import Groups
from moldau.model.errors import PeerError
from moldau.model.identity import TopicPartition
from moldau.testing import Broker
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, Gap
from moldau.tracking.counts import Count, CountKey
from support.audit_events import NOON, Host
from support.console import Console, end

pytestmark = pytest.mark.system

LIMIT_S = 60.0
EWR, JFK = Host(), Host("jfk-1", "jfk", instance=b"inst-jfk")
EVENTS = [host.event(number, NOON + 1000 * number) for number in range(1_500) for host in (EWR, JFK)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def full(broker: Broker) -> Broker:
    """Two topics with the same events."""
    for topic in ("one", "two"):
        broker.create_topic(topic, partitions=3)
        send(broker, topic, EVENTS)
    return broker


def send(broker: Broker, topic: str, values: list[bytes]) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=None if topic == "grown" else number % 3)


def audited(broker: Broker) -> TierCounts:
    with Cluster(broker.bootstrap_servers) as cluster:
        return read_audit(cluster)


def counted(broker: Broker, tier: str) -> dict[CountKey, Count]:
    """What a tier has published in all."""
    return {key: told.count for key, told in audited(broker).counts.get(tier, {}).items()}


def expected(**topics: list[bytes]) -> dict[CountKey, Count]:
    """What these topics hold."""
    return {key: count for topic, values in topics.items() for key, count in count_each(topic, values).counts().items()}


def first_counts_of(broker: Broker, tier: str) -> ConsumedMessage:
    """The first record of the audit topic that counts for this tier."""
    with Consumer(broker.bootstrap_servers) as consumer:
        count = consumer.partitions_for(AUDIT_TOPIC)
        consumer.assign(dict.fromkeys((TopicPartition(AUDIT_TOPIC, number) for number in range(count)), 0))
        while message := consumer.poll(LIMIT_S):
            record = AuditRecord.from_bytes(message.value)
            if (record.tier, record.kind) == (tier, "counts"):
                return message
    raise AssertionError(f"nothing of tier {tier} within {LIMIT_S} s")


def eventually(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline, f"not within {LIMIT_S} s: {what}"
        time.sleep(0.05)


@contextmanager
def running(broker: Broker, options: AuditorOptions) -> Iterator[tuple[Auditor, list[BaseException]]]:
    """An auditor in a thread, and what ended it."""
    auditor, ended = Auditor(broker.bootstrap_servers, options), []

    def run() -> None:
        try:
            auditor.run()
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield auditor, ended
    finally:
        auditor.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_it_neither_misses_nor_doubles(full: Broker, point: str) -> None:
    """SIGKILL at the point; the next one goes on where the last transaction was committed, and all events are counted once."""
    tier = "killed-at-" + point.replace(" ", "-")
    console = Console(full.bootstrap_servers)
    command = ("audit", "run", "--tier", tier, "--once", "--topics", "one|two")
    console.environment["MOLDAU_AUDIT_DIE_AT"] = point
    assert console(*command).code == -signal.SIGKILL
    Auditor(full.bootstrap_servers, AuditorOptions(tier, re.compile("one|two"))).run(once=True)
    assert counted(full, tier) == expected(one=EVENTS, two=EVENTS)


def test_killed_now_and_then_while_events_come(broker: Broker) -> None:
    """Kills at random moments of its work, and an end by SIGTERM: in the end each event is counted once."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    broker.create_topic("busy", partitions=3)
    console = Console(broker.bootstrap_servers)
    values: list[bytes] = []
    for turn in range(5):
        process = console.start("audit", "run", "--tier", "busy", "--topics", "busy", "--interval", "0.1")
        assert process.stdout is not None
        assert process.stdout.readline().startswith("auditing ")
        until = time.monotonic() + chance.uniform(0.2, 1.2)
        while time.monotonic() < until:
            more = [EWR.event(len(values) + number, NOON + 3 * len(values)) for number in range(200)]
            send(broker, "busy", more)
            values += more
        code, _, told = end(process, signal.SIGTERM if turn == 4 else signal.SIGKILL)
        assert code == (0 if turn == 4 else -signal.SIGKILL), told
    Auditor(broker.bootstrap_servers, AuditorOptions("busy", re.compile("busy"))).run(once=True)
    assert counted(broker, "busy") == expected(busy=values)


def test_new_topics_and_partitions_are_found_while_it_runs(broker: Broker) -> None:
    """A topic that is made, one that grows, one that goes and comes again: all events of all of them are counted, once."""
    options = AuditorOptions("finder", re.compile("grown|made|again"), interval_s=0.1, discover_s=0.1)
    broker.create_topic("grown", partitions=1)
    broker.create_topic("again", partitions=3)
    with running(broker, options) as (_, ended):
        send(broker, "again", EVENTS[:30])
        eventually("the first topic", lambda: counted(broker, "finder") == expected(again=EVENTS[:30]))
        broker.delete_topic("again")
        broker.create_topic("made", partitions=3)
        send(broker, "made", EVENTS[:50])
        with Cluster(broker.bootstrap_servers) as cluster:
            Admin(cluster).create_partitions("grown", 4)
        send(broker, "grown", EVENTS[:90])
        eventually("three topics", lambda: counted(broker, "finder") == expected(again=EVENTS[:30], made=EVENTS[:50], grown=EVENTS[:90]))
        broker.create_topic("again", partitions=3)
        send(broker, "again", EVENTS[100:106])
        everything = expected(again=EVENTS[:30] + EVENTS[100:106], made=EVENTS[:50], grown=EVENTS[:90])
        eventually("the topic that came again", lambda: counted(broker, "finder") == everything)
        assert not ended
        eventually("the mark that all is counted", lambda: "finder" in audited(broker).marked_ms)


def test_a_second_auditor_of_the_tier_fences_the_first(full: Broker) -> None:
    """The first one ends at its next transaction, by a clear name; nothing is counted twice."""
    options = AuditorOptions("contested", re.compile("one"), interval_s=0.1)
    with running(full, options) as (first, ended):
        eventually("the first publishes", lambda: first.statistics()["transactions"] > 0)
        Auditor(full.bootstrap_servers, options).run(once=True)
        with Producer(full.bootstrap_servers) as producer:
            producer.send("one", b"not tracked")
        eventually("the first is fenced", lambda: bool(ended))
        assert isinstance(ended[0], FencedError)
    Auditor(full.bootstrap_servers, options).run(once=True)
    assert counted(full, "contested") == expected(one=EVENTS)
    assert audited(full).untracked["contested", "one"].count == 1


def test_the_command_says_who_took_over(full: Broker) -> None:
    """Exit code 1 and one line."""
    process = Console(full.bootstrap_servers).start("audit", "run", "--tier", "taken", "--topics", "two", "--interval", "0.1")
    eventually("it publishes", lambda: "taken" in audited(full).marked_ms)
    Auditor(full.bootstrap_servers, AuditorOptions("taken", re.compile("two"))).run(once=True)
    with Producer(full.bootstrap_servers) as producer:
        producer.send("two", b"not tracked")
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, [line[:68] for line in err.strip().splitlines()]) == (
        1,
        ["Error: tier taken: another auditor of this tier has taken over, so t"],
    )
    assert "counted in" in out


def test_offsets_that_brokers_forgot_are_not_made_up(full: Broker) -> None:
    """A tier with counts whose group has no offsets would count everything twice: it is refused, by a line that says what to do."""
    options = AuditorOptions("forgotten", re.compile("two"))
    Auditor(full.bootstrap_servers, options).run(once=True)
    with Cluster(full.bootstrap_servers) as cluster:
        Groups(cluster).delete(group_of("forgotten"))
    with pytest.raises(LostOffsetsError, match="group audit-forgotten has no offsets of two: "):
        Auditor(full.bootstrap_servers, options).run(once=True)


def test_one_offset_that_is_gone_is_told_from_a_partition_that_is_new(broker: Broker) -> None:
    """Those of the others say how many there were: the new partition is counted, the forgotten one would be counted twice."""
    options = AuditorOptions("partly", re.compile("partly"))
    broker.create_topic("partly", partitions=3)
    send(broker, "partly", EVENTS[:30])
    Auditor(broker.bootstrap_servers, options).run(once=True)
    with Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).create_partitions("partly", 4)
        Auditor(broker.bootstrap_servers, options).run(once=True)
        assert counted(broker, "partly") == expected(partly=EVENTS[:30])
        kept = Groups(cluster).committed(group_of("partly"))
        Groups(cluster).delete_offsets(group_of("partly"), [TopicPartition("partly", 3)])
        with pytest.raises(LostOffsetsError, match="group audit-partly has no offsets of partly-3: "):
            Auditor(broker.bootstrap_servers, options).run(once=True)
        Groups(cluster).commit(group_of("partly"), kept)
    Auditor(broker.bootstrap_servers, options).run(once=True)
    assert counted(broker, "partly") == expected(partly=EVENTS[:30])


def test_an_offset_that_was_committed_behind_a_deletion_skips_nothing_of_the_new_topic(broker: Broker) -> None:
    """Between a topic's end and the auditor's notice of it, the offset of the old one can be committed for the new one."""
    options = AuditorOptions("late", re.compile("late"))
    broker.create_topic("late", partitions=3)
    send(broker, "late", EVENTS[:30])
    Auditor(broker.bootstrap_servers, options).run(once=True)
    with Cluster(broker.bootstrap_servers) as cluster:
        kept = Groups(cluster).committed(group_of("late"))
        broker.delete_topic("late")
        broker.create_topic("late", partitions=3)
        send(broker, "late", EVENTS[30:90])
        Groups(cluster).commit(group_of("late"), kept)
    Auditor(broker.bootstrap_servers, options).run(once=True)
    assert counted(broker, "late") == expected(late=EVENTS[:90])


def test_a_tier_whose_only_topic_was_deleted_goes_on(broker: Broker) -> None:
    """Its offsets went with the topic, and nothing is left to be counted twice; one made anew is counted from its beginning."""
    options = AuditorOptions("single", re.compile("single"))
    for turn in range(2):
        broker.create_topic("single", partitions=3)
        send(broker, "single", EVENTS[30 * turn : 30 * turn + 30])
        Auditor(broker.bootstrap_servers, options).run(once=True)
        assert counted(broker, "single") == expected(single=EVENTS[: 30 * turn + 30])
        broker.delete_topic("single")
        if turn == 0:
            Auditor(broker.bootstrap_servers, options).run(once=True)
    broker.create_topic("single", partitions=3)
    send(broker, "single", EVENTS[60:70])
    Auditor(broker.bootstrap_servers, options).run(once=True)
    with Cluster(broker.bootstrap_servers) as cluster:
        Groups(cluster).delete(group_of("single"))
    with pytest.raises(LostOffsetsError, match="group audit-single has no offsets of single: "):
        Auditor(broker.bootstrap_servers, options).run(once=True)
    assert counted(broker, "single") == expected(single=EVENTS[:70])


def test_counts_that_retention_has_taken_make_no_duplication_of_the_next_tier() -> None:
    """The upper tier's counts are the older ones, and go first; it still says that it has counted everything."""
    with Broker(settings={"protected.topics": ""}) as broker:
        broker.create_topic("old", partitions=3)
        send(broker, "old", EVENTS[:30])
        for tier in ("upper", "lower", "upper"):
            Auditor(broker.bootstrap_servers, AuditorOptions(tier, re.compile("old"))).run(once=True)
        rules = Rules(now_ms=int(time.time() * 1000) + 3_600_000, tree=TierTree.chain(("upper", "lower")))
        assert reconcile(audited(broker), rules).complete
        kept = first_counts_of(broker, "lower")
        with Cluster(broker.bootstrap_servers) as cluster:
            Admin(cluster).delete_records({TopicPartition(AUDIT_TOPIC, kept.partition): kept.offset})
        report = reconcile(audited(broker), rules)
        assert (report.alarming, report.pairs) == (False, ())


def test_what_is_no_audit_record_is_skipped_loudly(full: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """The line names partition and offset; the rest is read."""
    with Producer(full.bootstrap_servers) as producer:
        sent = producer.send(AUDIT_TOPIC, b"{", partition=2).result(LIMIT_S)
    found = audited(full)
    assert [(each.partition, each.offset) for each in found.unreadable if each.offset == sent.offset and each.partition == 2]
    assert f"audit record skipped: partition=_audit-2 offset={sent.offset} reason=an audit record is JSON" in caplog.text
    assert found.records


def test_a_watch_ends_when_its_reader_has_gone(full: Broker) -> None:
    """`moldau audit watch | head -1`: Claim: it ends though nothing changes, so that it writes nothing."""
    with Console(full.bootstrap_servers).start("audit", "watch", "--every", "600") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(LIMIT_S) == 1
        assert [line for line in process.stderr if not line.startswith("audit record skipped: ")] == [], "what another test has sent"


def test_records_that_are_gone_before_they_were_counted(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """It goes on where the log begins now, and says what it could not count; the report shows the loss."""
    options = AuditorOptions("trimmed", re.compile("trimmed"))
    broker.create_topic("trimmed", partitions=3)
    send(broker, "trimmed", EVENTS[:300])
    Auditor(broker.bootstrap_servers, options).run(once=True)
    send(broker, "trimmed", EVENTS[300:600])
    with Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).delete_records({TopicPartition("trimmed", 1): 150})
    Auditor(broker.bootstrap_servers, options).run(once=True)
    left = [event for number, event in enumerate(EVENTS[:600]) if number % 3 != 1 or number < 300 or number >= 450]
    assert counted(broker, "trimmed") == expected(trimmed=left)
    assert "records deleted before they were counted: partition=trimmed-1 position=100 log=[150, 200)" in caplog.text
    assert [(each.tier, each.topic, each.gap) for each in audited(broker).gaps] == [("trimmed", "trimmed", Gap(1, 100, 150, "gone"))]


def test_a_damaged_batch_stops_its_partition_and_no_other(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """The error names partition and offset. An auditor that runs on counts the others; one that is to count once fails."""
    broker.create_topic("damaged", partitions=3)
    send(broker, "damaged", EVENTS[:300])
    (segment,) = (broker.directory / "damaged-2").glob("*.log")
    with segment.open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    options = AuditorOptions("damage", re.compile("damaged"), interval_s=0.1)
    good = expected(damaged=[event for number, event in enumerate(EVENTS[:300]) if number % 3 != 2])
    with running(broker, options) as (_, ended):
        eventually("the other partitions", lambda: counted(broker, "damage") == good)
        eventually(
            "the error", lambda: "damaged batch, counting of the partition is suspended: partition=damaged-2 position=0" in caplog.text
        )
        assert not ended
    with pytest.raises(PeerError, match="damaged-2: the batch at offset 0 is damaged: its checksum does not match"):
        Auditor(broker.bootstrap_servers, options).run(once=True)
    broker.delete_topic("damaged")
