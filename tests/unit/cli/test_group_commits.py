"""``moldau consume --group`` commits what was printed, now and then and at the end, and only what has changed."""

from typing import TYPE_CHECKING, cast

import click
import pytest

from moldau.cli import group_reset
from moldau.cli.consume import GroupCommitter
from moldau.client.groups import GroupOffset, Groups
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, int]]:
    made: list[dict[TopicPartition, int]] = []
    monkeypatch.setattr(group_reset, "members_of", lambda cluster, group: None)
    monkeypatch.setattr(Groups, "committed", lambda self, group, partitions: {T0: GroupOffset(Offset(5))})
    monkeypatch.setattr(Groups, "commit", lambda self, group, offsets: made.append({where: to.offset for where, to in offsets.items()}))
    return made


def test_now_and_then_and_at_the_end(commits: list[dict[TopicPartition, int]]) -> None:
    now = [0.0]
    committer = GroupCommitter(cast("Cluster", None), "g", monotonic=lambda: now[0])
    assert committer.offsets([T0, T1]) == {T0: 5}
    committer.done({T0: Offset(6), T1: Offset(1)})
    assert commits == [], "not with every fetch"
    now[0] = 1.0
    committer.done({T0: Offset(7), T1: Offset(1)})
    committer.done({T0: Offset(8), T1: Offset(1)})
    committer.finish()
    assert commits == [{T0: 7, T1: 1}, {T0: 8}]


def test_a_group_with_members_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_reset, "members_of", lambda cluster, group: "group g is Stable with members (c at 10.0.0.1)")
    with pytest.raises(click.ClickException, match=r"group g is Stable with members .*; nothing was read"):
        GroupCommitter(cast("Cluster", None), "g")
