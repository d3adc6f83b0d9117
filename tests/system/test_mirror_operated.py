"""Operators change a mirror while it runs: only what they name stops or continues, and each state has a name (mission F3)."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cli.exit_codes import DONE, FAILED, NO_PROCESS, PARTITION_HALTED, RETRYING
from support.console import ConsoleInside
from support.mirror_operated import OperatedMirror, eventually

pytestmark = pytest.mark.system


@pytest.fixture
def merge(tmp_path: Path) -> Iterator[OperatedMirror]:
    with OperatedMirror(tmp_path, "merge") as world:
        yield world


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[OperatedMirror]:
    with OperatedMirror(tmp_path, "copy") as world:
        yield world


def test_a_merge_is_paused_changed_and_accepted_topic_by_topic(merge: OperatedMirror) -> None:
    # before a process runs: the check finds nothing wrong, and the status says that no process reports
    merge.produce("orders", "1", "2")
    assert merge.run("check").code == DONE
    assert merge.run("status").code == NO_PROCESS
    merge.mirror.start()
    eventually(lambda: merge.mirrored("orders") == ["1", "2"] and merge.state("orders") == "mirroring", "orders are mirrored")

    # a topic that is paused stands still with its lag, while another one is mirrored
    assert merge.run("pause", "--topic", "orders").lines == ["topic orders is paused"]
    eventually(lambda: merge.state("orders") == "paused", "orders are paused")
    merge.produce("orders", "3")
    assert merge.clicks_go_through()
    assert merge.mirrored("orders") == ["1", "2"]
    assert merge.run("status").code == DONE, "a pause is what an operator wants"
    assert merge.run("resume", "--topic", "orders").lines == ["topic orders is resumed"]
    eventually(lambda: merge.mirrored("orders") == ["1", "2", "3"], "orders are mirrored again")

    # topics come and go
    merge.produce("web", "a")
    assert merge.run("topics add", "web").lines == ["east: web is added"]
    eventually(lambda: merge.mirrored("web") == ["a"], "web is mirrored")
    assert merge.run("topics remove", "we.").lines == ["east: web is removed"]
    eventually(lambda: merge.state("web") == "", "web is not mirrored any more")
    merge.produce("web", "b")
    assert merge.clicks_go_through()
    assert merge.mirrored("web") == ["a"]

    # a topic that is made again halts with that state, until an operator accepts it
    console = ConsoleInside(merge.source.bootstrap_servers)
    console.ok("topic", "delete", "orders")
    merge.source.create_topic("orders")
    merge.produce("orders", "new")
    eventually(lambda: merge.state("orders") == "recreated", "the state has a name")
    assert merge.run("status").code == PARTITION_HALTED
    assert 'moldau_mirror_partition_halted{partition="0",source="east",state="recreated",topic="orders"} 1.0' in merge.metrics()
    assert merge.clicks_go_through()
    helps = "it stays halted until moldau mirror accept FILE --topic orders, which continues from where the source is now"
    halted = f"orders-0 of east has halted, recreated: {helps}"
    assert merge.run("resume", "--topic", "orders").lines == ["topic orders was not paused", halted]
    (line,) = merge.run("accept", "--topic", "orders").lines
    assert re.fullmatch(
        r"orders-0 of east: continues at offset 0 of the topic with id \w{32}; of the earlier topic everything from offset 3 on is skipped",
        line,
    )
    eventually(lambda: merge.mirrored("orders") == ["1", "2", "3", "new"], "the new topic is mirrored")
    eventually(lambda: merge.run("status").code == DONE, "all is well again")
    assert merge.mirror.stop() == DONE
    assert merge.run("status").code == NO_PROCESS


def test_a_copy_continues_after_a_gap_and_not_after_another_topic(copy: OperatedMirror) -> None:
    copy.produce("orders", "1", "2")
    copy.mirror.start()
    eventually(lambda: copy.mirrored("orders") == ["1", "2"], "orders are mirrored")

    # retention passes a paused partition: the gap is accepted, and said
    copy.run("pause", "--topic", "orders", "--partition", "0")
    eventually(lambda: copy.state("orders") == "paused", "orders are paused")
    copy.produce("orders", "3", "4", "5")
    console = ConsoleInside(copy.source.bootstrap_servers)
    console.ok("topic", "trim", "orders", "--before", "4")
    copy.run("resume")
    eventually(lambda: copy.state("orders") == "out of retention", "the state has a name")
    assert copy.run("status").code == PARTITION_HALTED
    (line,) = copy.run("accept", "--topic", "orders").lines
    assert line == "orders-0 of source: continues at offset 4; offsets 2 to 3 are skipped, and missing in the target"
    eventually(lambda: copy.mirrored("orders") == ["1", "2", "5"], "what is left is copied")
    assert copy.clicks_go_through()

    # a topic that is made again is refused with what to do
    console.ok("topic", "delete", "orders")
    copy.source.create_topic("orders")
    eventually(lambda: copy.state("orders") == "recreated", "the state has a name")
    refused = copy.run("accept", "--topic", "orders")
    assert refused.code == FAILED
    assert "delete topic orders in the target" in refused.err
    assert copy.clicks_go_through()


def test_the_lag_of_a_source_that_is_down_is_not_known_and_the_status_ends_with_it(
    copy: OperatedMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.produce("orders", "1", "2")
    copy.mirror.start()
    eventually(lambda: copy.mirrored("orders") == ["1", "2"] and copy.row("orders").get("lag_records") == 0, "orders are mirrored")
    copy.run("pause", "--topic", "clicks")
    eventually(lambda: copy.state("clicks") == "paused", "clicks are paused")

    copy.at_source.close()
    copy.source.stop()
    eventually(lambda: copy.state("orders") == "retrying", "orders are tried again")
    eventually(lambda: copy.row("clicks")["lag_records"] is None, "nor is the end of a paused topic known")
    row, totals = copy.row("orders"), copy.run("status", "--json").json["totals"]
    assert (row["position"], row["lag_records"], row["lag_bytes"], row["lag_s"]) == (2, None, None, None)
    assert (totals["lag_records"], totals["lag_unknown"]) == (None, 2)
    assert "lag not known" in copy.run("status").out

    # what does not end by itself soon ends the command with a code of its own
    monkeypatch.setattr("moldau.mirror.state.view.RETRYING_MS", 500)
    eventually(lambda: copy.run("status").code == RETRYING, "the status ends with it")
    assert re.search(r"retrying for \d+ s", copy.run("status").out)


def test_a_topic_that_never_was_a_copy_is_refused_and_one_that_was_is_promoted(copy: OperatedMirror) -> None:
    copy.target.create_topic("orders")
    copy.produce("orders", "1")
    copy.mirror.start()
    eventually(lambda: copy.state("orders") == "refused" and copy.state("clicks") == "mirroring", "the state has a name")
    assert "topic orders of the target was not made by this mirror" in copy.row("orders")["reason"]
    status = copy.run("status")
    assert status.code == PARTITION_HALTED
    assert re.search(r"^1 partition and 1 whole topic, 1 halted, at least ", status.out, re.MULTILINE), "counts are those of the rows"
    assert copy.clicks_go_through()

    # the operator does what the reason says
    ConsoleInside(copy.target.bootstrap_servers).ok("topic", "delete", "orders")
    eventually(lambda: copy.mirrored("orders") == ["1"], "orders are copied")
    assert copy.run("promote", "--now", "--topic", "orders").code == DONE
    eventually(lambda: copy.state("orders") == "promoted", "the state has a name")
    assert copy.mirror.stop() == DONE
    copy.mirror.start()
    eventually(lambda: copy.row("orders").get("reason", "").endswith("any more: it was promoted"), "so the next process has it")
    assert copy.state("orders") == "promoted"
    assert copy.run("status", "--json").json["totals"]["halted"] == 1
