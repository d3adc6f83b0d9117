"""Lag is a number only where offset and end are known; a dash says that one is not, as in Kafka's tool."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from moldau.cli import group_view
from moldau.cli.group_view import describe_group, print_group
from moldau.client.groups import GroupDescription, GroupMember, GroupOffset
from moldau.model.identity import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.groups import Groups

T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)


def described(
    monkeypatch: pytest.MonkeyPatch, committed: dict[TopicPartition, int], owned: tuple[TopicPartition, ...] = (), name: str = "g"
) -> dict[str, Any]:
    """Partitions t-0 and t-1 end at 100; there is no other."""
    members = (GroupMember("m\x1b", None, "c\x07", "10.0.0.1", ("t",), owned),) if owned else ()
    groups = SimpleNamespace(
        describe=lambda group: GroupDescription(group, "Stable", "consumer", "range", BrokerId(0), members),
        committed=lambda group: {where: GroupOffset(Offset(offset)) for where, offset in committed.items()},
    )
    monkeypatch.setattr(group_view, "ends_of", lambda cluster, wanted: {where: (0, 100) for where in wanted if where.topic == "t"})
    return describe_group(cast("Cluster", None), cast("Groups", groups), name)


@pytest.mark.parametrize(
    ("committed", "owned", "lag", "told"),
    [
        ({T0: 90, T1: 100}, (), 10, "lag 10"),
        ({T0: 100}, (), 0, "lag 0"),
        ({T0: 90}, (T0, T1), 10, "lag 10 and unknown in 1 partition"),
        ({}, (T0, T1), None, "lag -"),
        ({GONE: 5}, (), None, "lag -"),
        ({}, (), None, "lag -"),
    ],
)
def test_lag(
    committed: dict[TopicPartition, int],
    owned: tuple[TopicPartition, ...],
    lag: int | None,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = described(monkeypatch, committed, owned)
    assert found["lag"] == lag
    print_group(found)
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first.endswith(f", {told}")
    for each, row in zip(found["partitions"], rows, strict=False):
        known = each["committed"] is not None and each["end_offset"] is not None
        assert row.split()[4] == (str(each["lag"]) if known else "-")


def test_names_in_it_do_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    print_group(described(monkeypatch, {T0: 1}, (T0,), "g\x1b[2J"))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert out.startswith(r"group g\x1b[2J: Stable")
