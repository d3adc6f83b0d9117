"""``moldau group`` beside consumers that are at work: who reads what, how far behind, and that nobody's offsets are moved under him."""

import json
import resource
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from moldau.client import Consumer, Producer, TopicPartition
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from support.console import Console, ConsoleInside, end
from support.server import ServerProcess

pytestmark = pytest.mark.system

LIMIT_S = 30.0


@pytest.fixture(scope="module")
def moldau() -> Iterator[Console]:
    import tempfile

    with (
        tempfile.TemporaryDirectory() as directory,
        ServerProcess(Path(directory), settings={"group.initial.rebalance.delay.ms": "0"}) as server,
    ):
        yield ConsoleInside(server.bootstrap)


def fill(moldau: Console, topic: str, partitions: int, count: int) -> str:
    """A topic with so many messages in each partition; the brokers' address."""
    bootstrap = moldau.environment["MOLDAU_BOOTSTRAP"]
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(topic, partitions)
    with Producer(bootstrap) as producer:
        for number in range(partitions * count):
            producer.send(topic, b"%d" % number, partition=number % partitions)
    return bootstrap


def test_members_offsets_and_lag(moldau: Console) -> None:
    bootstrap = fill(moldau, "seen", 3, 10)
    with Consumer(bootstrap, group_id="watched", topics=["seen"], client_id="reader-1") as consumer:
        read = list(islice(consumer, 12))
        consumer.commit()
        committed = {where.partition: offset for where, offset in consumer.committed().items()}
        (found,) = moldau.ok("group", "describe", "watched", "--json").json
        assert (found["state"], found["protocol_type"], found["protocol"]) == ("Stable", "consumer", "range")
        (member,) = found["members"]
        assert (member["client_id"], member["host"], member["topics"]) == ("reader-1", "127.0.0.1", ["seen"])
        assert member["partitions"] == [{"topic": "seen", "partition": number} for number in range(3)]
        shown = {each["partition"]: each["committed"] for each in found["partitions"]}
        assert shown == {number: committed.get(number) for number in range(3)}
        assert found["lag"] == sum(10 - offset for offset in committed.values())
        assert {each["client_id"] for each in found["partitions"]} == {"reader-1"}

        told = moldau.ok("group", "describe", "watched").lines
        assert told[0].startswith("group watched: Stable, 1 member, range, coordinator 0, lag ")
        assert told[1].split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "HOST"]
        assert [line.split()[-1] for line in told if line.startswith("moldau") or "seen-0" in line] == ["seen-2"]
        (listed,) = moldau.ok("group", "list", "--state", "stable", "--json").json
        assert (listed["group"], listed["state"], listed["protocol_type"]) == ("watched", "Stable", "consumer")
    assert len(read) == 12


def test_a_group_at_work_is_neither_reset_nor_deleted_nor_read_for(moldau: Console) -> None:
    bootstrap = fill(moldau, "busy", 1, 10)
    with Consumer(bootstrap, group_id="working", topics=["busy"], client_id="worker") as consumer:
        assert consumer.poll(LIMIT_S) is not None
        refused = moldau("group", "reset", "working", "--topic", "busy", "--to", "latest", "--execute")
        assert (refused.code, refused.out) == (1, "")
        expected = "Error: group working is Stable with members (worker at 127.0.0.1); stop them first. Nothing was changed\n"
        assert refused.err == expected
        preview = moldau.ok("group", "reset", "working", "--topic", "busy", "--to", "latest")
        assert preview.lines[-1].split() == ["busy", "0", "-", "10"]
        assert "group working is Stable with members (worker at 127.0.0.1): while they run it cannot be reset" in preview.err
        refused = moldau("group", "delete", "working")
        assert refused.err == "Error: NON_EMPTY_GROUP: group working is Stable with members (worker at 127.0.0.1); stop them first\n"
        consumer.commit()
        held = moldau("group", "delete", "working", "--topic", "busy")
        assert held.err.startswith("Error: GROUP_SUBSCRIBED_TO_TOPIC: group working, partition busy-0: ")
        assert held.err.endswith(": group working is Stable with members (worker at 127.0.0.1); stop them first\n")
        assert moldau("consume", "busy", "--group", "working").err.startswith("Error: group working is Stable with members")
    moldau.ok("group", "reset", "working", "--to", "latest", "--execute")
    moldau.ok("group", "delete", "working")


def test_a_consumer_begins_where_its_group_was_reset_to(moldau: Console) -> None:
    bootstrap = fill(moldau, "again", 2, 10)
    moldau.ok("group", "reset", "rereader", "--topic", "again", "--to", "4", "--execute")
    with Consumer(bootstrap, group_id="rereader", topics=["again"]) as consumer:
        assert sorted((m.partition, m.offset) for m in islice(consumer, 12)) == [(p, offset) for p in range(2) for offset in range(4, 10)]
        consumer.commit()
    moldau.ok("group", "reset", "rereader", "--topic", "again", "--partition", "1", "--to", "earliest", "--execute")
    with Consumer(bootstrap, group_id="rereader", topics=["again"]) as consumer:
        assert [(m.partition, m.offset) for m in islice(consumer, 10)] == [(1, offset) for offset in range(10)]
        assert consumer.committed([TopicPartition("again", 0)]) == {TopicPartition("again", 0): 10}


def test_what_was_printed_for_a_group_is_not_printed_again(moldau: Console) -> None:
    fill(moldau, "nightly", 2, 5)
    first = moldau.ok("consume", "nightly", "--group", "job", "--max", "4").lines
    second = moldau.ok("consume", "nightly", "--group", "job", "--until-end").lines
    assert sorted(map(int, first + second)) == list(range(10))
    assert moldau.ok("consume", "nightly", "--group", "job", "--until-end").lines == []
    assert moldau.ok("group", "describe", "job", "--json").json[0]["lag"] == 0


def test_who_begins_at_the_end_gets_what_comes_after_that(moldau: Console) -> None:
    """Although nothing was printed the first time, the group has a place from then on."""
    bootstrap = fill(moldau, "later", 2, 5)
    arguments = ("consume", "later", "--group", "newcomers", "--from", "end", "--until-end")
    assert moldau.ok(*arguments).lines == []
    with Producer(bootstrap) as producer:
        producer.send("later", b"new")
    assert moldau.ok(*arguments).lines == ["new"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_consumer_that_is_stopped_commits_what_it_has_printed(moldau: Console, how: signal.Signals) -> None:
    """And ends with 0, by a supervisor's SIGTERM as by Ctrl-C."""
    topic = f"stopped-{how.name}"
    fill(moldau, topic, 1, 3)
    consumer = moldau.start("consume", topic, "--group", topic)
    assert consumer.stdout is not None
    assert [consumer.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
    assert end(consumer, how) == (0, "", "")
    (found,) = moldau.ok("group", "describe", topic, "--json").json
    assert [(each["committed"], each["lag"]) for each in found["partitions"]] == [(3, 0)]


def test_of_several_groups_those_that_are_there_are_shown(moldau: Console) -> None:
    fill(moldau, "several", 1, 1)
    moldau.ok("group", "reset", "there\x1b[2J", "--topic", "several", "--to", "end", "--execute")
    done = moldau("group", "describe", "none", "there\x1b[2J", "nope")
    assert done.code == 1
    assert done.lines[0] == r"group there\x1b[2J: Empty, 0 members, coordinator 0, lag 0"
    assert [line.split(":")[:3] for line in done.err.splitlines()] == [
        ["Error", " GROUP_ID_NOT_FOUND", f" group {name}"] for name in ("none", "nope")
    ]


def test_the_brokers_own_topics_are_not_deleted_by_a_slip(moldau: Console) -> None:
    fill(moldau, "kept", 1, 1)
    moldau.ok("group", "reset", "keeper", "--topic", "kept", "--to", "end", "--execute")
    refused = moldau("topic", "delete", "kept", "__consumer_offsets")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: topic __consumer_offsets holds the brokers' own state; --internal ")
    assert moldau.ok("group", "describe", "keeper", "--json").json[0]["partitions"][0]["committed"] == 1
    assert moldau.ok("topic", "delete", "kept").lines == ["deleted topic kept"]


def test_aborted_messages_are_left_out_where_that_is_asked(moldau: Console) -> None:
    bootstrap = fill(moldau, "ledger", 1, 1)
    producer = Producer(bootstrap, transactional_id="writer")
    with pytest.raises(ZeroDivisionError), producer.transaction():
        1 // producer.send("ledger", b"aborted").result(LIMIT_S).partition
    with producer.transaction():
        producer.send("ledger", b"committed")
    assert moldau.ok("consume", "ledger", "--until-end").lines == ["0", "aborted", "committed"]
    with producer.transaction():
        producer.send("ledger", b"open").result(LIMIT_S)
        committed = moldau.ok("consume", "ledger", "--until-end", "--isolation-level", "read_committed")
        assert committed.lines == ["0", "committed"]
    producer.close()


def test_a_file_is_sent_in_one_transaction_or_not_at_all(moldau: Console) -> None:
    fill(moldau, "files", 2, 0)
    sent = moldau.ok("produce", "files", "--transactional-id", "file", text="1\n2\n3\n")
    assert sent.err == "3 records sent\n"
    undone = moldau("produce", "files", "--format", "json", "--transactional-id", "file", text='{"a": 1}\nbad\n')
    assert (undone.code, undone.err.splitlines()[-1]) == (1, "1 record sent and undone, stopped at the first bad line")
    too_large = moldau("produce", "files", "--transactional-id", "file", text="4\n" + "x" * 2_000_000 + "\n")
    assert (too_large.code, too_large.err.splitlines()[-1]) == (1, "1 record sent and undone, 1 failed")
    committed = moldau.ok("consume", "files", "--until-end", "--isolation-level", "read_committed")
    assert sorted(committed.lines) == ["1", "2", "3"]
    wrong = moldau("produce", "files", "--transactional-id", "file", "--acks", "1")
    assert (wrong.code, wrong.err.splitlines()[-1]) == (2, "Error: --transactional-id needs --acks all, and idempotence")


def test_the_list_is_quick(moldau: Console) -> None:
    """``moldau group list`` costs 0.4 s at most: of CPU time, since how long it takes is also a matter of who else is at work."""
    moldau = Console(moldau.environment["MOLDAU_BOOTSTRAP"])
    moldau.ok("group", "list")
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = moldau.ok("group", "list", "--json")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert isinstance(json.loads(done.out), list)
    assert max(times) <= 0.4, times
