"""An operator's decision about what has halted: what is written for each partition, and the line that says what is skipped."""

import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from moldau.mirror.accepting import NotAcceptedError, accept
from moldau.mirror.merge.positions import POSITIONS, Key, Stored
from moldau.mirror.merge.stored_positions import read_positions
from moldau.mirror.operator import Operator
from moldau.mirror.partitions import Position
from moldau.mirror.plan.values import MirrorPlan
from moldau.mirror.state.orders import Accepted
from moldau.mirror.state.reports import WHOLE_TOPIC, Row, State
from moldau.mirror.state.topic import append
from moldau.model.errors import PeerError, WorldError
from moldau.model.identity import TopicPartition
from support.mirror_clusters import MirrorCluster, MirrorClusters, run

O0 = TopicPartition("orders", 0)
OLD = b"o" * 16
HALTED = [each for each in State if each.is_halted]


class Subject:
    """A mirror that has reported, and an operator."""

    def __init__(self, clusters: MirrorClusters, operator: Operator) -> None:
        self.clusters = clusters
        self.operator = operator

    @property
    def source(self) -> MirrorCluster:
        return self.clusters.source

    def row(self, topic_id: bytes, state: State, number: int = 0) -> Row:
        (source,) = self.operator.plan.sources
        return Row(source.name, "orders", topic_id, number, state, "so it is")

    async def key(self, topic_id: bytes, partition: int = 0) -> Key:
        catalog = (await self.operator.source_catalogs())["east"]
        assert not isinstance(catalog, str)
        return Key("m", catalog.cluster_id, topic_id, partition)

    async def store(self, positions: dict[Key, Position]) -> None:
        """As a merge has written them."""
        target = self.clusters.target
        if POSITIONS.topic not in (await self.operator.target_catalog()).topics:
            await target.create(POSITIONS.topic)
        records = [(key.encode(), Stored(position, "orders", "1", 7).encode()) for key, position in positions.items()]
        await append(target.brokers, POSITIONS, records, 1)

    async def accepted(self) -> list[Accepted]:
        return list((await self.operator.board()).accepted.values())

    async def stored(self) -> dict[Key, Stored]:
        return await read_positions(self.operator.target)


def story(plan: Callable[[MirrorClusters], MirrorPlan], tell: Callable[[Subject], Coroutine[Any, Any, None]]) -> None:
    async def told(clusters: MirrorClusters) -> None:
        async with clusters.operator(plan(clusters)) as operator:
            await tell(Subject(clusters, operator))

    run(told)


@pytest.mark.parametrize("plan", [MirrorClusters.merge, MirrorClusters.copy])
def test_where_nothing_has_halted_nothing_is_accepted(plan: Callable[[MirrorClusters], MirrorPlan]) -> None:
    async def tell(subject: Subject) -> None:
        with pytest.raises(NotAcceptedError, match=r"nothing of orders has halted, as far as the processes of mirror m have reported"):
            await accept(subject.operator, "orders", None)
        await subject.clusters.report(subject.row(OLD, State.RETRYING), subject.row(OLD, State.TRUNCATED, 1))
        with pytest.raises(NotAcceptedError, match="nothing of orders-0 has halted"):
            await accept(subject.operator, "orders", 0)
        with pytest.raises(NotAcceptedError, match="nothing of clicks has halted"):
            await accept(subject.operator, "clicks", None)
        assert await subject.accepted() == []

    story(plan, tell)


@pytest.mark.parametrize("state", [each for each in HALTED if each.name not in ("RECREATED", "DELETED", "OUT_OF_RETENTION", "TRUNCATED")])
def test_what_is_not_the_sources_doing_is_resumed_and_not_accepted(state: State) -> None:
    async def tell(subject: Subject) -> None:
        await subject.clusters.report(subject.row(OLD, State.TRUNCATED, 1), subject.row(OLD, state))
        expected = rf"orders-0 of east: {state.value} \(so it is\): remove the cause, then moldau mirror resume --topic orders"
        with pytest.raises(NotAcceptedError, match=expected):
            await accept(subject.operator, "orders", None)
        assert await subject.accepted() == []

    story(MirrorClusters.merge, tell)


def test_a_source_that_does_not_answer_is_said_and_nothing_is_written() -> None:
    async def tell(subject: Subject) -> None:
        await subject.clusters.report(subject.row(OLD, State.TRUNCATED))
        subject.source.kill()
        with pytest.raises(NotAcceptedError, match="source east broker:9092 does not answer within 10 s"):
            await accept(subject.operator, "orders", None)
        assert await subject.accepted() == []

    story(MirrorClusters.merge, tell)


def test_a_merge_forgets_a_topic_that_is_deleted() -> None:
    """Claim: its positions are removed, those of its namesake in another mirror are not."""

    async def tell(subject: Subject) -> None:
        await subject.source.create("clicks")
        mine = await subject.key(OLD)
        other = mine._replace(mirror="other")
        await subject.store({mine: Position(5), mine._replace(partition=1): Position(6), other: Position(7)})
        await subject.clusters.report(subject.row(OLD, State.DELETED, WHOLE_TOPIC))
        assert await accept(subject.operator, "orders", None) == ["orders of east: deleted in the source, and forgotten"]
        (found,) = await subject.accepted()
        assert found[:5] == ("east", "orders", WHOLE_TOPIC, OLD, -1)
        assert (found.by, found.at_ms > 0) == ("me", True)
        assert list(await subject.stored()) == [other]

    story(MirrorClusters.merge, tell)


def test_a_merge_continues_at_the_beginning_of_a_topic_that_was_made_again() -> None:
    """Claim: each partition gets a position in the new topic, the old one's is removed, and the line has where that was."""

    async def tell(subject: Subject) -> None:
        new = await subject.source.create("orders", 2)
        await subject.source.write(O0, "a", "b", "c")
        await subject.source.trim(O0, 2)
        old = await subject.key(OLD)
        await subject.store({old: Position(40, 3)})
        await subject.clusters.report(subject.row(OLD, State.RECREATED, WHOLE_TOPIC))
        first, second = await accept(subject.operator, "orders", None)
        continues = f"continues at offset 2 of the topic with id {new.hex()}"
        assert first == f"orders-0 of east: {continues}; of the earlier topic everything from offset 40 on is skipped"
        assert second == f"orders-1 of east: continues at offset 0 of the topic with id {new.hex()}"
        assert [each[:5] for each in await subject.accepted()] == [("east", "orders", 0, new, 2), ("east", "orders", 1, new, 0)]
        key = await subject.key(new)
        assert {each: stored.position for each, stored in (await subject.stored()).items()} == {
            key: Position(2),
            key._replace(partition=1): Position(0),
        }

    story(MirrorClusters.merge, tell)


def test_a_halt_of_one_partition_is_accepted_for_it_alone() -> None:
    async def tell(subject: Subject) -> None:
        new = await subject.source.create("orders", 2)
        old = await subject.key(OLD)
        await subject.store({old: Position(3), old._replace(partition=1): Position(4)})
        await subject.clusters.report(subject.row(OLD, State.RECREATED, 0), subject.row(OLD, State.RECREATED, 1))
        (line,) = await accept(subject.operator, "orders", 1)
        assert re.match(r"orders-1 of east: continues at offset 0 .* from offset 4 on is skipped$", line)
        assert [each.partition for each in await subject.accepted()] == [1]
        assert set(await subject.stored()) == {old, (await subject.key(new))._replace(partition=1)}

    story(MirrorClusters.merge, tell)


@pytest.mark.parametrize(
    ("at", "text", "to"),
    [
        pytest.param(1, "continues at offset 3; offsets 1 to 2 are skipped", 3, id="retention has passed it"),
        pytest.param(4, "continues at offset 4", 4, id="the records are there"),
        pytest.param(
            9, "continues at offset 5; of offsets 5 to 8 the target keeps what the source does not have any more", 5, id="truncated"
        ),
    ],
)
def test_a_merge_continues_in_the_same_topic_where_the_source_has_records(at: int, text: str, to: int) -> None:
    """Claim: a gap is skipped to the first record; of a log that was truncated to where its epoch ends."""

    async def tell(subject: Subject) -> None:
        topic_id = await subject.source.create("orders")
        await subject.source.write(O0, "a", "b", "c", "d", "e")
        await subject.source.trim(O0, 3)
        key = await subject.key(topic_id)
        await subject.store({key: Position(at, 0)})
        await subject.clusters.report(subject.row(topic_id, State.TRUNCATED if at > 5 else State.OUT_OF_RETENTION))
        assert await accept(subject.operator, "orders", None) == [f"orders-0 of east: {text}"]
        assert (await subject.stored())[key] == Stored(Position(to), "orders", "operator")
        assert [each.offset for each in await subject.accepted()] == [to]

    story(MirrorClusters.merge, tell)


def test_without_a_position_there_is_nothing_to_accept_in_the_same_topic() -> None:
    async def tell(subject: Subject) -> None:
        topic_id = await subject.source.create("orders")
        await subject.clusters.target.create(POSITIONS.topic)
        await subject.clusters.report(subject.row(topic_id, State.OUT_OF_RETENTION))
        with pytest.raises(NotAcceptedError, match="orders-0 of east has no position in the target: it begins as the file says"):
            await accept(subject.operator, "orders", None)
        assert await subject.accepted() == []

    story(MirrorClusters.merge, tell)


def test_a_copy_continues_after_a_gap() -> None:
    """Claim: where its log in the target ends, or where the source begins if that is later; nothing but the decision is written."""

    async def tell(subject: Subject) -> None:
        topic_id = await subject.source.create("orders", 2)
        await subject.clusters.target.create("orders", 2)
        await subject.source.write(O0, *"abcde")
        await subject.clusters.target.write(O0, "a", "b")
        await subject.source.trim(O0, 4)
        await subject.clusters.report(subject.row(topic_id, State.OUT_OF_RETENTION), subject.row(topic_id, State.OUT_OF_RETENTION, 1))
        assert await accept(subject.operator, "orders", None) == [
            "orders-0 of source: continues at offset 4; offsets 2 to 3 are skipped, and missing in the target",
            "orders-1 of source: continues at offset 0",
        ]
        assert [each[:5] for each in await subject.accepted()] == [
            ("source", "orders", 0, topic_id, 4),
            ("source", "orders", 1, topic_id, 0),
        ]
        assert POSITIONS.topic not in (await subject.operator.target_catalog()).topics

    story(MirrorClusters.copy, tell)


@pytest.mark.parametrize(
    ("state", "number"), [(State.RECREATED, WHOLE_TOPIC), (State.DELETED, WHOLE_TOPIC), (State.TRUNCATED, 0), (State.RECREATED, 0)]
)
def test_a_copy_of_another_log_is_refused_with_what_to_do(state: State, number: int) -> None:
    async def tell(subject: Subject) -> None:
        await subject.source.create("orders")
        await subject.clusters.report(subject.row(OLD, state, number))
        with pytest.raises(
            NotAcceptedError, match=rf"of source: {state.value}: .*; delete topic orders in the target .* mirror topics remove"
        ):
            await accept(subject.operator, "orders", None)
        assert await subject.accepted() == []

    story(MirrorClusters.copy, tell)


def test_each_step_ends_with_the_operators_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: a cluster that stops answering in the middle is named with the limit, and nothing is written."""

    async def tell(subject: Subject) -> None:
        topic_id = await subject.source.create("orders")
        await subject.store({await subject.key(topic_id): Position(0)})
        await subject.clusters.report(subject.row(topic_id, State.OUT_OF_RETENTION))
        catalogs = await subject.operator.source_catalogs()
        subject.source.kill()

        async def known() -> object:
            return catalogs

        monkeypatch.setattr(subject.operator, "source_catalogs", known)
        begun_s = subject.clusters.clock.monotonic()
        with pytest.raises((WorldError, PeerError), match="source east broker:9092 does not answer within 10 s"):
            await accept(subject.operator, "orders", None)
        assert subject.clusters.clock.monotonic() - begun_s < 12
        assert await subject.accepted() == []

    story(MirrorClusters.merge, tell)
