"""What operators read and order reaches the topic and comes back; a cluster that does not answer is named with the limit and the cause."""

import pytest

from moldau.mirror.catalog import Catalog
from moldau.mirror.patterns import parse_pattern
from moldau.mirror.selection import Action, Change
from moldau.mirror.state.orders import Pause, Scope, change_record, pause_record
from moldau.mirror.state.topic import STATE
from moldau.model.errors import WorldError
from support.mirror_clusters import MirrorClusters, run


def test_before_anything_was_ordered_the_board_is_empty_and_no_topic_is_made() -> None:
    async def story(clusters: MirrorClusters) -> None:
        async with clusters.operator(clusters.merge()) as operator:
            board = await operator.board()
            assert (board.pauses, board.changes, board.processes) == ({}, [], {})
            assert STATE.topic not in (await operator.target_catalog()).topics

    run(story)


def test_orders_are_read_back_by_the_next_operator_of_this_mirror_and_of_no_other() -> None:
    async def story(clusters: MirrorClusters) -> None:
        change, pause = Change(Action.ADD, parse_pattern("web.*")), Pause("me", 5)
        async with clusters.operator(clusters.merge()) as first:
            await first.order([change_record("m", change, "me", 5), pause_record("m", Scope("orders"), pause)])
            await first.order([pause_record("m", Scope("orders", 1), pause), pause_record("other", Scope(), pause)])
        async with clusters.operator(clusters.merge()) as second:
            board = await second.board()
            assert board.changes == [change]
            assert board.pauses == {Scope("orders"): pause, Scope("orders", 1): pause}
            await second.order([pause_record("m", Scope("orders"), None)])
            assert (await second.board()).pauses == {Scope("orders", 1): pause}

    run(story)


def test_a_source_that_does_not_answer_is_a_text_and_the_target_an_error() -> None:
    """Claim: a mirror with one source that is away is still operated; without its target it is not. Both are named, with the limit and
    the cause.
    """

    async def story(clusters: MirrorClusters) -> None:
        async with clusters.operator(clusters.merge(), timeout_s=3.0) as operator:
            assert isinstance((await operator.source_catalogs())["east"], Catalog)
            clusters.source.kill()
            assert await operator.source_catalogs() == {
                "east": "source east broker:9092 does not answer within 3 s: broker:9092: cannot connect: connection refused"
            }
            clusters.target.kill()
            away = "target-broker:9092 does not answer within 3 s: target-broker:9092: cannot connect: connection refused"
            begun_s = clusters.clock.monotonic()
            for asked in (operator.target_catalog, operator.board):
                with pytest.raises(WorldError, match=f"target {away}") as failure:
                    await asked()
                assert failure.value.retriable
            with pytest.raises(WorldError, match="does not answer within 3 s"):
                await operator.order([pause_record("m", Scope(), None)])
            assert clusters.clock.monotonic() - begun_s == pytest.approx(9.0, abs=0.5)

    run(story)
