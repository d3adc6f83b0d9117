"""What operators of mirrors name wrongly, or ask of a cluster that is down, is an error that names it; no process of a mirror runs here."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.cli.exit_codes import DONE, FAILED
from moldau.testing.broker import Broker
from support.console import Console, ConsoleInside, Done
from support.mirror_world import mirror_text

pytestmark = pytest.mark.system

LIMIT_S = 30.0


class Pair:
    """A, with records, and B, whose topics `orders` and `web` are copies; the files of a copy and a merge to B, and of a copy back."""

    def __init__(self, directory: Path, a: Broker, b: Broker) -> None:
        self.a, self.b = a, b
        self._console = ConsoleInside()
        self._directory = directory
        for name, mode, source, target in (("there", "copy", a, b), ("back", "copy", b, a), ("merge", "merge", a, b)):
            text = mirror_text(mode, source.bootstrap_servers, target.bootstrap_servers, name=name)
            (directory / f"{name}.toml").write_text(text)
        for topic in ("orders", "web"):
            self.at(a).ok("topic", "create", topic)
            self.at(b).ok("topic", "create", topic, "-c", "mirror.source=a topic")

    @staticmethod
    def at(broker: Broker) -> Console:
        return ConsoleInside(broker.bootstrap_servers)

    def run(self, command: str, *arguments: str, mirror: str = "there") -> Done:
        return self._console("mirror", *command.split(), str(self._directory / f"{mirror}.toml"), *arguments)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Broker() as a, Broker() as b:
        yield Pair(tmp_path, a, b)


def states(done: Done) -> dict[str, str]:
    return {each["topic"]: each["state"] for each in done.json}


def test_topics_that_were_added_at_run_time_are_promoted_and_fail_back(pair: Pair) -> None:
    assert pair.run("topics add", "web").lines == ["source: web is added"]
    shown = pair.run("promote", "--now", "--dry-run", "--json")
    assert states(shown) == {"orders": "ready", "web": "ready"}
    assert states(pair.run("promote", "--now", "--topic", "web", "--json")) == {"web": "promoted"}
    pair.run("topics add", "web", mirror="back")
    assert states(pair.run("fail-back", "--topic", "web", "--json", mirror="back")) == {"web": "follows"}

    # those that were removed are not
    pair.run("topics remove", "orders")
    removed = pair.run("promote", "--now", "--topic", "orders")
    assert (removed.code, "topic orders in the target is not one of mirror there: it was removed" in removed.err) == (FAILED, True), removed
    assert "POLICY_VIOLATION" in pair.at(pair.b)("produce", "orders", text="x\n").err, "orders are a copy still"


def test_a_topic_that_is_not_mirrored_is_an_error_and_nothing_is_promoted(pair: Pair) -> None:
    for command, mirror in (("promote", "there"), ("fail-back", "back")):
        where = "source or target" if mirror == "there" else "source and target"
        unknown = pair.run(command, "--topic", "order", "--topic", "orders", mirror=mirror)
        assert unknown.code == FAILED
        assert f"no topic of mirror {mirror} in {where} matches 'order', did you mean 'orders'?" in unknown.err
        other = pair.run(command, "--topic", "web", mirror=mirror)
        assert other.code == FAILED
        assert f"topic web in {where} is not one of mirror {mirror}: no pattern of the file includes it" in other.err
    assert "POLICY_VIOLATION" in pair.at(pair.b)("produce", "orders", text="x\n").err, "orders are a copy still"


def test_a_planned_promotion_waits_for_topics_and_partitions_that_the_target_does_not_have_yet(pair: Pair) -> None:
    pair.run("topics add", "web", "late")
    pair.at(pair.a).ok("topic", "create", "late")
    pair.at(pair.a).ok("topic", "alter", "web", "--partitions", "2")
    waits = pair.run("promote", "--wait", "1", "--json")
    assert waits.code == FAILED
    assert [(each["topic"], each["partition"], each["state"], each["reason"]) for each in waits.json] == [
        ("late", 0, "not ready", "not in the target yet"),
        ("orders", 0, "ready", ""),
        ("web", 0, "ready", ""),
        ("web", 1, "not ready", "not in the target yet"),
    ]
    assert "POLICY_VIOLATION" in pair.at(pair.b)("produce", "orders", text="x\n").err, "nothing was promoted"
    assert states(pair.run("promote", "--topic", "orders", "--json")) == {"orders": "promoted"}


def test_a_group_that_does_not_exist_is_an_error(pair: Pair) -> None:
    group = Consumer({"bootstrap.servers": pair.a.bootstrap_servers, "group.id": "billing"})
    group.commit(offsets=[TopicPartition("web", 0, 0)], asynchronous=False)
    group.close()
    for mirror, source in (("there", "source"), ("merge", "source east")):
        unknown = pair.run("offsets", "--group", "biling", mirror=mirror)
        assert unknown.code == FAILED
        assert f"group biling does not exist in {source}, did you mean 'billing'?" in unknown.err
        idle = pair.run("offsets", "--group", "billing", mirror=mirror)
        assert (idle.code, idle.lines) == (DONE, ["group billing has no offsets of topics that are mirrored"])


def test_an_order_about_what_the_mirror_does_not_have_is_an_error(pair: Pair) -> None:
    for command in ("pause", "resume"):
        unknown = pair.run(command, "--topic", "order", mirror="merge")
        assert (unknown.code, "no source of mirror merge has topic order, did you mean 'orders'?" in unknown.err) == (FAILED, True), unknown
        of_target = pair.run(command, "--topic", "east.orders", mirror="merge")
        assert (of_target.code, "in source east it is called orders" in of_target.err) == (FAILED, True), of_target
        beyond = pair.run(command, "--topic", "orders", "--partition", "1", mirror="merge")
        assert (beyond.code, "partition orders-1 does not exist: the topic has 1 partition" in beyond.err) == (FAILED, True), beyond
    assert pair.run("status", "--json", mirror="merge").json["pauses"] == []
    assert pair.run("resume", "--topic", "orders").lines == ["topic orders was not paused"]


def test_patterns_that_match_nothing_are_named_and_can_be_forgotten(pair: Pair) -> None:
    none = "source: no topic is added or removed now"
    typo = pair.run("topics add", "webs")
    hint = "webs matches no topic now, did you mean 'web'?; topics that match later are mirrored, until moldau mirror topics forget"
    assert (typo.code, typo.lines) == (DONE, [none, hint])
    removed = pair.run("topics remove", "webs")
    assert (removed.code, "moldau mirror topics forget takes that back" in removed.err) == (FAILED, True), removed
    assert pair.run("topics forget", "webs").lines == ["topics add webs is forgotten", none]
    assert pair.run("status", "--json").json["changes"] == []
    again = pair.run("topics forget", "webs")
    assert (again.code, "nothing was added to mirror there or removed by 'webs'" in again.err) == (FAILED, True), again


def test_a_cluster_that_is_down_is_named_with_its_address_and_the_cause(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.mirror.operator.CONTACT_S", 0.5)

    def assert_named(name: str, broker: Broker, *command: str) -> None:
        done = pair.run(*command)
        assert done.code == FAILED
        assert f"{name} {broker.bootstrap_servers} does not answer within 0.5 s: " in done.err, done
        assert "cannot connect" in done.err, done
        assert done.err.endswith("connection refused\n"), done

    pair.a.stop()
    assert_named("source", pair.a, "offsets", "--group", "billing")
    pair.b.stop()
    for command in (
        ["promote", "--now"],
        ["promote"],
        ["fail-back"],
        ["status"],
        ["pause"],
        ["resume"],
        ["topics add", "web"],
        ["topics remove", "web"],
        ["accept", "--topic", "orders"],
        ["offsets", "--group", "billing"],
    ):
        assert_named("target", pair.b, *command)
