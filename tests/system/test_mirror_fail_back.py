"""`moldau mirror fail-back` drops nothing that it has not named, and refuses what cannot follow. The copy here has never run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.testing.broker import Broker
from support.console import Console, ConsoleInside
from support.mirror_world import mirror_text

pytestmark = pytest.mark.system

TOPICS = ["orders", "clicks"]
console = ConsoleInside()


class Pair:
    """A, with records, and B, whose topic is a copy of it."""

    def __init__(self, directory: Path, a: Broker, b: Broker) -> None:
        self.a = ConsoleInside(a.bootstrap_servers)
        self.b = ConsoleInside(b.bootstrap_servers)
        self.there, self.back = directory / "there.toml", directory / "back.toml"
        self.there.write_text(mirror_text("copy", a.bootstrap_servers, b.bootstrap_servers, name="there", topics=TOPICS))
        self.back.write_text(mirror_text("copy", b.bootstrap_servers, a.bootstrap_servers, name="back", topics=TOPICS))
        self.a.ok("topic", "create", "orders")
        self.b.ok("topic", "create", "orders", "-c", "mirror.source=a topic")

    @staticmethod
    def read(cluster: Console) -> list[str]:
        return cluster.ok("consume", "orders", "--until-end").lines


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Broker() as a, Broker() as b:
        yield Pair(tmp_path, a, b)


def test_records_are_dropped_only_once_they_were_named(pair: Pair) -> None:
    pair.a.ok("produce", "orders", text="one\ntwo\n")
    refused = pair.b("produce", "orders", text="x\n")
    assert "POLICY_VIOLATION" in refused.err

    # an empty copy is promoted; what it shows before is what it does then
    shown = console.ok("mirror", "promote", str(pair.there), "--now", "--dry-run", "--json").json
    done = console.ok("mirror", "promote", str(pair.there), "--now", "--json").json
    assert ([each["state"] for each in shown], [each["state"] for each in done]) == (["ready"], ["promoted"])
    assert (done[0]["offset"], done[0]["dropped"]) == (0, None)
    pair.b.ok("produce", "orders", text="three\n")

    # neither --dry-run nor a command without --discard changes anything
    named = console.ok("mirror", "fail-back", str(pair.back), "--dry-run", "--json").json
    assert [(each["state"], each["never_mirrored"]) for each in named] == [("ready", [0, 2])]
    refused = console("mirror", "fail-back", str(pair.back))
    assert refused.code == 1
    assert "2 offsets never mirrored, nothing was changed" in refused.err
    pair.a.ok("produce", "orders", text="four\n")
    assert pair.read(pair.a) == ["one", "two", "four"]

    # then clients can write no more, and the log is cut
    done = console.ok("mirror", "fail-back", str(pair.back), "--discard", "--json").json
    assert [(each["state"], each["never_mirrored"]) for each in done] == [("follows", [0, 3])]
    assert "POLICY_VIOLATION" in pair.a("produce", "orders", text="x\n").err
    assert pair.read(pair.a) == []


def test_what_cannot_follow_is_refused_and_nothing_is_changed(pair: Pair) -> None:
    pair.a.ok("produce", "orders", text="one\n")
    copy = console("mirror", "fail-back", str(pair.back), "--discard")
    assert (copy.code, "is a copy itself: promote it first" in copy.err) == (1, True)
    console.ok("mirror", "promote", str(pair.there), "--now", "--topic", "orders")
    turned = console("mirror", "fail-back", str(pair.there), "--discard")
    assert (turned.code, "wrong way round" in turned.out) == (1, True)
    pair.a.ok("topic", "create", "clicks", "--partitions", "2")
    pair.b.ok("topic", "create", "clicks")
    beyond = console("mirror", "fail-back", str(pair.back), "--discard")
    assert (beyond.code, "2 partitions in the target and 1 in the source" in beyond.err) == (1, True)
    assert pair.read(pair.a) == ["one"]
    pair.a.ok("produce", "orders", text="two\n")
    console.ok("mirror", "fail-back", str(pair.back), "--discard", "--topic", "ord.*")


def test_a_planned_promotion_without_its_source_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.mirror.promotion.SOURCE_S", 0.3)
    with Broker() as a, Broker() as b:
        pair = Pair(tmp_path, a, b)
        a.stop()
        away = console("mirror", "promote", str(pair.there))
        assert away.code == 1
        assert "--now promotes what the target has" in away.err
        assert "POLICY_VIOLATION" in pair.b("produce", "orders", text="x\n").err
    assert console("mirror", "promote", str(pair.there), "--now", "--wait", "1").code == 2
