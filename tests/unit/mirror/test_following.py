"""What is committed for a group, what is written as a checkpoint, and which configurations change."""

import json

import pytest

from moldau.mirror.following.checkpoints import Checkpoint, CheckpointKey, checkpoints_topic
from moldau.mirror.following.config_sync import changes_of
from moldau.mirror.following.decision import offsets_to_commit
from moldau.mirror.following.groups import Committed
from moldau.mirror.state.board import Board
from moldau.mirror.state.following import Following, GroupFailure, RefusedConfig, following_in, following_key
from moldau.mirror.translation.translate import Translated
from moldau.model.identity import TopicPartition
from moldau.protocol.records.record import Record
from support.pages import ROOT

ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("translated", "there", "committed"),
    [
        (50, None, 50),  # it was never there
        (50, 40, 50),
        (50, 50, None),
        (50, 60, None),  # it has worked in the target since
        (None, None, None),  # not known yet
        (0, None, 0),
    ],
)
def test_a_group_only_moves_on(translated: int | None, there: int | None, committed: int | None) -> None:
    known = {} if there is None else {ONE: Committed(there)}
    found = offsets_to_commit([Translated(ONE, (), translated), Translated(OTHER, (), 7)], known)
    assert found == ({} if committed is None else {ONE: committed}) | {OTHER: 7}


def test_a_checkpoint_has_the_bytes_of_mirror_maker_2() -> None:
    """Claim: those of `Checkpoint` of Kafka's connect-mirror-client: strings with two bytes of length, numbers in network order."""
    key = CheckpointKey("billing", TopicPartition("east.größe", 3))
    assert key.encode() == b"\x00\x07billing\x00\x0ceast.gr\xc3\xb6\xc3\x9fe\x00\x00\x00\x03"
    value = Checkpoint(1000, 258, "m")
    assert value.encode() == b"\x00\x00" + b"\x00\x00\x00\x00\x00\x00\x03\xe8" + b"\x00\x00\x00\x00\x00\x00\x01\x02" + b"\x00\x01m"
    assert checkpoints_topic("east") == "east.checkpoints.internal"


def test_the_page_has_these_bytes() -> None:
    page = (ROOT / "docs" / "formats" / "mirror-checkpoints.md").read_text()
    key = CheckpointKey("billing", TopicPartition("east.orders", 3)).encode()
    value = Checkpoint(1204, 4711, "").encode()
    assert key.hex(" ") in page
    assert value.hex(" ") in page


@pytest.mark.parametrize(
    ("wanted", "there", "deletes", "changes"),
    [
        ({"retention.ms": "5"}, {}, False, {"retention.ms": "5"}),
        ({"retention.ms": "5"}, {"retention.ms": "5"}, True, {}),
        ({"retention.ms": "5", "segment.ms": "6"}, {"retention.ms": "4", "segment.ms": "6"}, True, {"retention.ms": "5"}),
        ({}, {"retention.ms": "5"}, True, {"retention.ms": None}),
        ({}, {"retention.ms": "5"}, False, {}),
        ({"min.insync.replicas": "2"}, {}, True, {}),
        ({}, {"min.insync.replicas": "2"}, True, {}),
    ],
)
def test_configurations_that_differ_change(
    wanted: dict[str, str], there: dict[str, str], deletes: bool, changes: dict[str, str | None]
) -> None:
    assert changes_of(wanted, there, frozenset({"min.insync.replicas"}), deletes=deletes) == changes


def test_a_report_is_read_as_it_was_written() -> None:
    report = Following(
        instance="a",
        groups_ms=5,
        groups=3,
        group_failures=(GroupFailure("g", "denied"), GroupFailure("", "broker a:1: lost")),
        refused=(RefusedConfig("orders", "retention.ms", "too short"),),
    )
    assert following_in(report.encode()) == report
    board = Board("m")
    board.take(Record(offset=0, timestamp=0, timestamp_type=0, key=following_key("m"), value=report.encode(), headers=[]))
    board.take(Record(offset=1, timestamp=0, timestamp_type=0, key=following_key("another"), value=b"{}", headers=[]))
    assert board.following == report
    with pytest.raises(ValueError, match="not the report"):
        following_in(json.dumps({"instance": 1}).encode())
