"""Changes of topics say what they match, and can be taken back."""

import pytest

from moldau.mirror.operator import Operator
from moldau.mirror.patterns import parse_pattern
from moldau.mirror.selection import Action, Change
from moldau.mirror.state.reports import Row, State
from moldau.mirror.topic_changes import change, forget
from moldau.model.errors import PeerError
from support.mirror_clusters import MirrorClusters, run

NONE = "east: no topic is added or removed now"


def add(pattern: str) -> Change:
    return Change(Action.ADD, parse_pattern(pattern))


def remove(pattern: str) -> Change:
    return Change(Action.REMOVE, parse_pattern(pattern))


async def topics(clusters: MirrorClusters, *names: str) -> None:
    for name in names:
        await clusters.source.create(name)


async def changes(operator: Operator) -> list[Change]:
    return (await operator.board()).changes


def test_an_addition_that_matches_nothing_says_so_and_stays() -> None:
    async def story(clusters: MirrorClusters) -> None:
        await topics(clusters, "web", "web.internal")
        async with clusters.operator(clusters.merge()) as operator:
            later = "matches no topic now; topics that match later are mirrored, until moldau mirror topics forget"
            assert await change(operator, [add("new.*")]) == [NONE, f"new.* {later}"]
            (_, typo) = await change(operator, [add("webs")])
            assert typo.startswith("webs matches no topic now, did you mean 'web'?; ")
            assert await change(operator, [add("web.*")]) == ["east: web is added", "web.internal is not added: the file excludes it"]
            assert await change(operator, [add("web")]) == [NONE]
            assert await changes(operator) == [add("new.*"), add("webs"), add("web.*"), add("web")]

    run(story)


def test_a_removal_that_matches_nothing_is_an_error_and_nothing_is_changed() -> None:
    async def story(clusters: MirrorClusters) -> None:
        await topics(clusters, "orders")
        async with clusters.operator(clusters.merge()) as operator:
            with pytest.raises(PeerError, match="no topic of mirror m matches 'order', did you mean 'orders'"):
                await change(operator, [remove("orders"), remove("order")])
            assert await changes(operator) == []
            await change(operator, [add("webs")])
            with pytest.raises(PeerError, match="matches 'webs', which was added; moldau mirror topics forget takes that back"):
                await change(operator, [remove("webs")])
            # a topic that its source does not have any more, and one that a source may have that does not answer, are removed
            await clusters.report(Row("east", "clicks", bytes(16), 0, State.DELETED))
            assert await change(operator, [remove("clicks")]) == [NONE, "clicks matches no topic now"]
            clusters.source.kill()
            (line, _) = await change(operator, [remove("any")])
            assert line.startswith("east: its topics are not known now: source east broker:9092 does not answer within")

    run(story)


def test_what_is_forgotten_is_decided_by_the_file_again() -> None:
    async def story(clusters: MirrorClusters) -> None:
        await topics(clusters, "orders", "web")
        async with clusters.operator(clusters.merge()) as operator:
            await change(operator, [add("web"), add("webs"), remove("orders"), add("orders.*")])
            with pytest.raises(PeerError, match="nothing was added to mirror m or removed by 'order', did you mean 'orders'"):
                await forget(operator, [parse_pattern("web"), parse_pattern("order")])
            assert await forget(operator, [parse_pattern("web"), parse_pattern("webs")]) == [
                "topics add web is forgotten",
                "topics add webs is forgotten",
                "east: web is removed",
            ]
            assert await changes(operator) == [remove("orders"), add("orders.*")]
            assert await forget(operator, [parse_pattern("orders.*")]) == ["topics add orders.* is forgotten", "east: orders is removed"]
            assert await forget(operator, [parse_pattern("orders")]) == ["topics remove orders is forgotten", "east: orders is added"]
            assert await changes(operator) == []

    run(story)
