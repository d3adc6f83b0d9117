"""An order names what the mirror has, or is an error; the end of a pause says what halts all the same, and what helps."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from moldau.mirror.operator import Operator
from moldau.mirror.patterns import parse_pattern
from moldau.mirror.pauses import pause, resume
from moldau.mirror.plan.values import MirrorPlan
from moldau.mirror.selection import Action, Change
from moldau.mirror.state.orders import Scope, change_record
from moldau.mirror.state.reports import WHOLE_TOPIC, Row, State
from moldau.model.errors import PeerError, WorldError
from support.mirror_clusters import MirrorClusters, run

ID = bytes(16)


def story(
    tell: Callable[[MirrorClusters, Operator], Coroutine[Any, Any, None]],
    plan: Callable[[MirrorClusters], MirrorPlan] = MirrorClusters.merge,
) -> None:
    async def told(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders", 3)
        await clusters.source.create("web")
        async with clusters.operator(plan(clusters)) as operator:
            await tell(clusters, operator)

    run(told)


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        (Scope("order"), "no source of mirror m has topic order, did you mean 'orders'?"),
        (Scope("east.orders"), "topic east.orders is one of the target; in source east it is called orders"),
        (Scope("orders", 3), "partition orders-3 does not exist: the topic has 3 partitions, numbered from 0"),
        (Scope("web"), "topic web is not one of mirror m: no pattern of the file includes it, and none was added"),
        (Scope("web", 0), "topic web is not one of mirror m: no pattern of the file includes it, and none was added"),
    ],
)
def test_what_the_mirror_does_not_have_is_neither_paused_nor_resumed(scope: Scope, message: str) -> None:
    async def tell(_: MirrorClusters, operator: Operator) -> None:
        for order in (pause, resume):
            with pytest.raises(PeerError) as failure:
                await order(operator, scope)
            assert failure.value.message == message
        assert (await operator.board()).pauses == {}

    story(tell)


def test_all_a_topic_and_a_partition_are_paused() -> None:
    async def tell(_: MirrorClusters, operator: Operator) -> None:
        await operator.order([change_record("m", Change(Action.ADD, parse_pattern("web")), "me", 1)])
        scopes = [Scope(), Scope("orders"), Scope("orders", 2), Scope("web")]
        for scope in scopes:
            await pause(operator, scope)
        assert [*(await operator.board()).pauses] == scopes

    story(tell)


def test_without_its_source_what_processes_have_reported_is_paused_and_the_rest_is_not_known() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        await clusters.report(Row("east", "orders", ID, 0, State.RETRYING, "no leader"))
        clusters.source.kill()
        await pause(operator, Scope("orders"))
        await pause(operator, Scope("orders", 0))
        with pytest.raises(
            WorldError, match="partition orders-1 is not known to mirror m: source east broker:9092 does not answer within 10"
        ):
            await pause(operator, Scope("orders", 1))
        assert [*(await operator.board()).pauses] == [Scope("orders"), Scope("orders", 0)]

    story(tell)


def test_a_pause_of_what_does_not_exist_any_more_is_ended() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        await pause(operator, Scope("orders", 1))
        await clusters.source.delete("orders")
        assert await resume(operator, Scope("orders", 1)) == ["partition orders-1 is resumed"]

    story(tell)


def test_what_was_not_paused_is_not_called_resumed_and_a_wider_pause_is_named() -> None:
    async def tell(_: MirrorClusters, operator: Operator) -> None:
        assert await resume(operator, Scope("orders")) == ["topic orders was not paused"]
        await pause(operator, Scope())
        assert await resume(operator, Scope("orders")) == ["topic orders was not paused", "the mirror is still paused, by me"]

    story(tell)


ACCEPT = "it stays halted until moldau mirror accept FILE --topic orders, which continues from where the source is now"
DELETE = (
    "it stays halted: the topic of the target is a copy of what the source had, and nothing else can follow in it; delete topic orders in "
    "the target to have it copied from its beginning, or take it out of the mirror: moldau mirror topics remove"
)
AGAIN = "it is tried again, and halts again unless the cause was removed: so it is"


@pytest.mark.parametrize(
    ("plan", "state", "advice"),
    [
        *((MirrorClusters.merge, each, ACCEPT) for each in (State.RECREATED, State.TRUNCATED, State.DELETED, State.OUT_OF_RETENTION)),
        *((MirrorClusters.copy, each, DELETE) for each in (State.RECREATED, State.TRUNCATED, State.DELETED)),
        (MirrorClusters.copy, State.OUT_OF_RETENTION, ACCEPT),
        *((MirrorClusters.merge, each, AGAIN) for each in (State.POISONED, State.DENIED, State.REFUSED, State.LOOP, State.ORIGIN_LOST)),
        (MirrorClusters.copy, State.PROMOTED, "clients write to the copy, and nothing is mirrored into it any more"),
    ],
)
def test_what_has_halted_is_named_with_what_helps(plan: Callable[[MirrorClusters], MirrorPlan], state: State, advice: str) -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        source = operator.plan.sources[0].name
        halted = Row(source, "orders", ID, 0, state, "so it is")
        await clusters.report(halted, halted._replace(number=1, state=State.MIRRORING), halted._replace(topic="clicks"))
        line = f"orders-0 of {source} has halted, {state.value}: {advice}"
        assert await resume(operator, Scope("orders")) == ["topic orders was not paused", line]
        await pause(operator, Scope("orders", 0))
        assert await resume(operator, Scope("orders", 0)) == ["partition orders-0 is resumed", line]
        assert await resume(operator, Scope("orders", 1)) == ["partition orders-1 was not paused"]
        assert len(await resume(operator, Scope())) == 3, "clicks have halted, too"
        # none of a topic that was removed
        await operator.order([change_record("m", Change(Action.REMOVE, parse_pattern("clicks")), "me", 1)])
        assert await resume(operator, Scope()) == ["the mirror was not paused", line]

    story(tell, plan)


def test_a_topic_that_has_halted_is_named_for_each_of_its_partitions() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        await clusters.report(Row("east", "orders", ID, WHOLE_TOPIC, State.DELETED, "so it is"))
        for scope in (Scope(), Scope("orders"), Scope("orders", 2)):
            assert await resume(operator, scope) == [f"{scope} was not paused", f"orders of east has halted, deleted: {ACCEPT}"]

    story(tell)
