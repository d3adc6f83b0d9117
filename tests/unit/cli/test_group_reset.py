"""What a reset would do is shown before it is done, partition by partition; what cannot be meant is refused before anybody is asked."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import click
import pytest

from moldau.cli.group_reset import ResetStep, ResetTarget, check_wishes, parse_file, plan_reset, print_plan
from moldau.cli.offsets import AtOffset, AtTime, LastOffsets, LogEnd, LogStart
from moldau.client.groups import GroupOffset, Groups
from moldau.client.partition_requests import EARLIEST, LATEST, ListedOffset
from moldau.model.identity import Offset, TimestampMs, TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
BOUNDS = {T0: (5, 100), T1: (0, 10), U0: (0, 0)}


class FakeCluster:
    """Topic t with two partitions and u with one; a record of each millisecond from 1000 on at each offset."""

    def metadata(self, topics: Any) -> Any:
        return SimpleNamespace(topics={name: self.topic(name) for name in topics if name in ("t", "u")})

    def topic(self, name: str) -> Any:
        partitions = [SimpleNamespace(partition=where.partition, leader=0) for where in BOUNDS if where.topic == name]
        return SimpleNamespace(partitions=partitions)

    def list_offsets(self, wanted: Mapping[TopicPartition, int], *, isolation_level: int = 0) -> dict[TopicPartition, ListedOffset]:
        return {where: ListedOffset(Offset(self._find(where, time)), TimestampMs(-1), 0) for where, time in wanted.items()}

    def _find(self, where: TopicPartition, time: int) -> int:
        first, end = BOUNDS[where]
        return {EARLIEST: first, LATEST: end}.get(time, max(first, time - 1000) if time - 1000 < end else -1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> "Cluster":
    """The group g has committed in t-0 and u-0."""
    offsets = {T0: GroupOffset(Offset(50)), U0: GroupOffset(Offset(0))}
    monkeypatch.setattr(Groups, "committed", lambda self, group, partitions=None: offsets if group == "g" else {})
    return cast("Cluster", FakeCluster())


def plan(
    cluster: "Cluster", to: Any, *topics: str, partitions: tuple[int, ...] = (), group: str = "g"
) -> dict[TopicPartition, tuple[int | None, int]]:
    return {step.where: (step.before, step.after) for step in plan_reset(cluster, group, ResetTarget(topics, partitions, to))}


def test_the_whole_group_is_what_it_has_committed(cluster: "Cluster") -> None:
    assert plan(cluster, LogStart()) == {T0: (50, 5), U0: (0, 0)}
    assert plan(cluster, LogEnd()) == {T0: (50, 100), U0: (0, 0)}


def test_one_topic_or_one_partition_whether_or_not_it_was_read(cluster: "Cluster") -> None:
    assert plan(cluster, LogEnd(), "t") == {T0: (50, 100), T1: (None, 10)}
    assert plan(cluster, LastOffsets(3), "t", partitions=(1,)) == {T1: (None, 7)}
    assert plan(cluster, AtOffset(6), "t", group="new") == {T0: (None, 6), T1: (None, 6)}


def test_times(cluster: "Cluster") -> None:
    assert plan(cluster, AtTime(1008), "t") == {T0: (50, 8), T1: (None, 8)}
    assert plan(cluster, AtTime(1050), "t") == {T0: (50, 50), T1: (None, 10)}, "the end, where no record is that young"


def test_shifts(cluster: "Cluster") -> None:
    assert plan(cluster, -20) == {T0: (50, 30), U0: (0, 0)}
    with pytest.raises(click.ClickException, match="group g has committed nothing in partition t-1 that could be shifted"):
        plan(cluster, 3, "t")


def test_what_lies_outside_of_the_log_is_moved_to_its_ends_with_a_notice(cluster: "Cluster") -> None:
    (low,) = plan_reset(cluster, "g", ResetTarget(("t",), (0,), AtOffset(1)))
    assert low == ResetStep(T0, 50, 5, "offset 1 is outside of the log, which has 5 to 100")
    (high,) = plan_reset(cluster, "g", ResetTarget(("t",), (0,), 500))
    assert (high.after, high.notice) == (100, "offset 550 is outside of the log, which has 5 to 100")
    (end,) = plan_reset(cluster, "g", ResetTarget(("t",), (0,), AtOffset(100)))
    assert end.notice == "", "the end is a place to read from"


def test_offsets_from_a_file(cluster: "Cluster") -> None:
    assert plan(cluster, {T1: 3, T0: 7}) == {T0: (50, 7), T1: (None, 3)}
    with pytest.raises(click.ClickException, match="partition t-7 is not there"):
        plan(cluster, {TopicPartition("t", 7): 3})


def test_what_is_not_there_is_refused(cluster: "Cluster") -> None:
    with pytest.raises(click.ClickException, match="group none has committed nothing yet; name the topics with --topic"):
        plan(cluster, LogEnd(), group="none")
    with pytest.raises(click.BadParameter, match="topic t has partitions 0 to 1, not 2"):
        plan(cluster, LogEnd(), "t", partitions=(2,))


def test_the_file_of_kafkas_tool() -> None:
    """``topic,partition,offset`` as kafka-consumer-groups writes and reads it, or with the group in front."""
    assert parse_file("g", ["t,0,5\n", "\n", " t , 1 , 7\n"], "f") == {T0: 5, T1: 7}
    assert parse_file("g", ["g,t,0,5\n", "other,t,1,9\n", '"g","t","1","7"\n'], "f") == {T0: 5, T1: 7}


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["t,0\n"], "f:1: neither topic,partition,offset nor group,topic,partition,offset"),
        (["t,0,5\n", "t,1,-2\n"], "f:2: neither"),
        (["t,zero,5\n"], "f:1: neither"),
        ([",0,5\n"], "f:1: neither"),
        (["t,0,99999999999999999999\n"], "f:1: neither"),
        (["t,0,5\n", "t,0,6\n"], "f:2: partition t-0 comes twice"),
        (["other,t,0,5\n"], "f: no offsets for group g"),
        ([], "f: no offsets for group g"),
    ],
)
def test_a_file_that_is_none(lines: list[str], wrong: str) -> None:
    with pytest.raises(click.ClickException, match=wrong):
        parse_file("g", lines, "f")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({}, "give one of --to, --shift-by and --from-file"),
        ({"to": LogEnd(), "shift_by": 1}, "give one of --to"),
        ({"to": LogEnd(), "partitions": (1,)}, "--partition needs exactly one --topic"),
        ({"to": LogEnd(), "partitions": (1,), "topics": ("t", "u")}, "--partition needs exactly one --topic"),
        ({"from_file": "f", "topics": ("t",)}, "--from-file names topics"),
    ],
)
def test_wishes_that_cannot_be_meant(arguments: dict[str, Any], wrong: str) -> None:
    given: dict[str, Any] = {"topics": (), "partitions": (), "to": None, "shift_by": None, "from_file": None, **arguments}
    topics, partitions = given.pop("topics"), given.pop("partitions")
    with pytest.raises(click.UsageError, match=wrong):
        check_wishes("g", topics, partitions, **given)


def test_a_dry_run_says_so_and_what_is_piped_on_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [ResetStep(T0, None, 5, "offset 1 is outside of the log, which has 5 to 100"), ResetStep(T1, 3, 7)]
    print_plan("g", steps, executed=False, as_json=False, export=False)
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines()] == [
        ["TOPIC", "PARTITION", "BEFORE", "AFTER"],
        ["t", "0", "-", "5"],
        ["t", "1", "3", "7"],
    ]
    assert said.err.splitlines() == [
        "partition t-0: offset 1 is outside of the log, which has 5 to 100; 5 is taken",
        "nothing was changed; --execute does it",
    ]
    print_plan("g", steps, executed=True, as_json=False, export=True)
    said = capsys.readouterr()
    assert parse_file("g", said.out.splitlines(), "f") == {T0: 5, T1: 7}
    assert said.err.endswith("group g was reset\n")
