"""What is found wrong, or remarkable, with a mirror's file and its clusters before it runs; each finding is one line, with its severity."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from moldau.mirror.catalog import Catalog
from moldau.mirror.checks import READ, WRITE, Checked, Found, check_file, check_together
from moldau.mirror.inventory import source_text
from moldau.mirror.loops import Severity
from moldau.mirror.operator import Operator
from moldau.mirror.patterns import parse_pattern
from moldau.mirror.plan.values import MirrorPlan, Target
from moldau.mirror.selection import Action, Change
from moldau.mirror.state.orders import change_record
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.api_keys import ApiKey
from support.mirror_clusters import MirrorClusters, answering, run

ERROR, WARNING, NOTICE = Severity.ERROR, Severity.WARNING, Severity.NOTICE
UNKNOWN = -2147483648
EVERYTHING = 0x7FF8


async def found(operator: Operator) -> set[tuple[Severity, str]]:
    """What is found, and that each finding names the file."""
    checked = await check_file(operator, "m.toml")
    assert {each.file for each in checked.found} <= {"m.toml"}
    return {(each.severity, each.text) for each in checked.found}


def story(plan: Callable[[MirrorClusters], MirrorPlan], tell: Callable[[MirrorClusters, Operator], Coroutine[Any, Any, None]]) -> None:
    async def told(clusters: MirrorClusters) -> None:
        for topic in ("orders", "clicks"):
            await clusters.source.create(topic, 2)
        async with clusters.operator(plan(clusters)) as operator:
            await tell(clusters, operator)

    run(told)


def test_what_is_missing_in_the_target_is_said_and_is_no_error() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        lacks = "the target lacks topics east.clicks, east.orders of source east, which the mirror will create"
        assert await found(operator) == {(NOTICE, lacks)}
        await clusters.target.create("east.clicks", 2)
        assert await found(operator) == {(NOTICE, lacks.replace("topics east.clicks, east.orders", "topic east.orders"))}
        await clusters.target.create("east.orders", 2)
        assert await found(operator) == set()

    story(MirrorClusters.merge, tell)


def test_of_many_topics_some_are_named() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        for number in range(6):
            await clusters.source.create(f"orders{number}")
        ((severity, text),) = await found(operator)
        assert (severity, text.count("east."), "and 3 more of source east" in text) == (NOTICE, 5, True)

    story(MirrorClusters.merge, tell)


def test_a_pattern_without_a_topic_is_warned_of() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        await clusters.source.delete("clicks")
        assert (WARNING, "[topics] include: 'clicks' matches no topic of source east") in await found(operator)

    story(MirrorClusters.merge, tell)


@pytest.mark.parametrize(
    ("growth", "severity", "end"), [(True, NOTICE, ": the others will be added"), (False, ERROR, ", and [sync] growth is false")]
)
def test_a_topic_with_too_few_partitions_is_grown_or_an_error(growth: bool, severity: Severity, end: str) -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        await clusters.target.create("east.orders", 1)
        await clusters.target.create("east.clicks", 3)
        assert await found(operator) == {(severity, f"topic east.orders has 1 partitions in the target, and 2 in source east{end}")}

    story(lambda clusters: clusters.merge(more=f"sync.growth = {str(growth).lower()}\n"), tell)


def test_a_merge_by_key_may_have_any_number_of_partitions() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        for topic in ("east.orders", "east.clicks"):
            await clusters.target.create(topic, 1)
        assert await found(operator) == set()

    story(lambda clusters: clusters.merge(more='partitioning = "key"\n'), tell)


def test_a_name_that_no_topic_can_have_is_an_error() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        await clusters.source.create("orders" + "x" * 240)
        errors = [text for severity, text in await found(operator) if severity is ERROR]
        assert len(errors) == 1
        assert "orders" + "x" * 240 in errors[0]

    story(MirrorClusters.merge, tell)


def test_a_copy_needs_topics_that_are_copies_of_its_source() -> None:
    """Claim: one that is missing is made; one of clients, of another topic or cluster, is an error that says which of these it is."""

    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        catalog = (await operator.source_catalogs())["source"]
        assert isinstance(catalog, Catalog)
        orders, clicks = (source_text(catalog.cluster_id, catalog.topics[topic].topic_id) for topic in ("orders", "clicks"))
        await clusters.target.create("orders", 2, mirror_source=orders)
        await clusters.target.create("clicks", 2, mirror_source=orders)
        again = "a copy of an earlier topic of this name, which was deleted in the source and made again"
        assert await found(operator) == {(ERROR, f"topic clicks of the target: {again}")}
        others = (
            "no copy, but made by others than a mirror, or promoted; the mirror does not write to it, unless mirror fail-back makes it one"
        )
        elsewhere = f"a copy of a topic of another cluster, elsewhere, and not of the source's, which is cluster {catalog.cluster_id}"
        for of, error in (({}, others), ({"mirror_source": f"elsewhere {clicks.partition(' ')[2]}"}, elsewhere)):
            await clusters.target.delete("clicks")
            await clusters.target.create("clicks", 2, **of)
            assert await found(operator) == {(ERROR, f"topic clicks of the target: {error}")}

    story(MirrorClusters.copy, tell)


def test_topics_that_are_no_copies_for_one_reason_are_one_finding() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        for topic in ("orders", "clicks"):
            await clusters.target.create(topic, 2)
        ((severity, text),) = await found(operator)
        assert severity is ERROR
        assert text.startswith("topics clicks, orders of the target: no copy, but made by others")

    story(MirrorClusters.copy, tell)


def test_the_mirror_back_waits_until_the_cluster_is_moved() -> None:
    """Claim: of the two files of a move, that of the way back is no error while the source has the copies, and both together are none."""

    async def told(clusters: MirrorClusters) -> None:
        topic_id = await clusters.source.create("orders")
        there = clusters.copy("there")
        back = clusters.copy("back")
        back = replace(
            back,
            sources=(replace(back.sources[0], bootstrap_servers=there.target.bootstrap_servers),),
            target=Target(there.sources[0].bootstrap_servers),
        )
        checked = []
        async with clusters.operator(there) as operator:
            catalog = (await operator.source_catalogs())["source"]
            assert isinstance(catalog, Catalog)
            await clusters.target.create("orders", 1, mirror_source=source_text(catalog.cluster_id, topic_id))
            checked.append(await check_file(operator, "there.toml"))
        async with clusters.operator(back) as operator:
            checked.append(await check_file(operator, "back.toml"))
        severities = [[each.severity for each in one.found if "matches no topic" not in each.text] for one in checked]
        assert severities == [[], [NOTICE]]
        assert (
            checked[1]
            .found[-1]
            .text.startswith("the source has topic orders as a copy of the target's; clients have to move before this mirror can run")
        )
        (together,) = check_together(checked)
        assert together.severity is WARNING
        assert "copies in both directions, as for moving a cluster: only one of them may run at a time" in together.text

    run(told)


def test_whether_a_topic_is_a_copy_may_be_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: that is a finding; what else is wrong is found beside it."""

    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        await clusters.target.create("orders", 2)

        def denied(response: Any) -> Any:
            response.results[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return response

        monkeypatch.setattr(operator.target, "ask", answering(operator.target, {ApiKey.DESCRIBE_CONFIGS: denied}))
        texts = {text for severity, text in await found(operator)}
        assert texts == {
            "whether topic orders of the target is a copy cannot be found out: configurations of topic orders: topic_authorization_failed",
            "the target lacks topic clicks of the source, which the mirror will create",
        }

    story(MirrorClusters.copy, tell)


def test_changes_at_run_time_count() -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        await clusters.source.create("web")
        await operator.order([change_record("m", Change(action, parse_pattern(each)), "me", 1) for action, each in CHANGES])
        assert await found(operator) == {
            (NOTICE, "the target lacks topics east.orders, east.web of source east, which the mirror will create")
        }

    story(MirrorClusters.merge, tell)


CHANGES = ((Action.ADD, "web"), (Action.REMOVE, "clicks"))


def test_orders_that_cannot_be_read_are_an_error_and_the_file_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        async def damaged() -> Any:
            raise PeerError(ErrorCode.CORRUPT_MESSAGE, "_mirror_state-0: the batch at offset 3 has a wrong checksum")

        monkeypatch.setattr(operator, "board", damaged)
        texts = {text for _, text in await found(operator)}
        assert "the orders in the target cannot be read: _mirror_state-0: the batch at offset 3 has a wrong checksum" in texts
        assert any(text.startswith("the target lacks") for text in texts)

    story(MirrorClusters.merge, tell)


def test_clusters_that_do_not_answer_are_errors() -> None:
    """Claim: what the other one has is checked nevertheless. All are asked at the same time: several do not take longer than one."""

    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        clusters.target.kill()
        target, source = (
            f"{broker}:9092 does not answer within 10 s: {broker}:9092: cannot connect: connection refused"
            for broker in ("target-broker", "broker")
        )
        assert await found(operator) == {(ERROR, f"target {target}")}
        clusters.source.kill()
        begun_s = clusters.clock.monotonic()
        assert await found(operator) == {(ERROR, f"target {target}"), (ERROR, f"source east {source}")}
        assert clusters.clock.monotonic() - begun_s == pytest.approx(10.0, abs=0.5)

    story(MirrorClusters.merge, tell)


def with_rights(topics: int, cluster: int) -> dict[ApiKey, Callable[[Any], Any]]:
    """Has a cluster allow these operations."""

    def alter(response: Any) -> Any:
        for topic in response.topics:
            topic.topic_authorized_operations = topics
        response.cluster_authorized_operations = cluster
        return response

    return {ApiKey.METADATA: alter}


def test_what_a_client_may_not_do_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: to read and describe in the source, to write in the target; without the right to create each topic needs it."""

    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        await clusters.target.create("east.orders", 2)
        source, target = operator.sources["east"], operator.target
        monkeypatch.setattr(source, "ask", answering(source, with_rights(1 << READ, EVERYTHING)))
        monkeypatch.setattr(target, "ask", answering(target, with_rights(EVERYTHING & ~(1 << WRITE), 0)))
        assert await found(operator) == {
            (ERROR, "source east: Describe is not allowed for topics clicks, orders"),
            (ERROR, "source east: DescribeConfigs is not allowed for topics clicks, orders"),
            (ERROR, "target: Write is not allowed for topic east.orders"),
            (NOTICE, "the target lacks topic east.clicks of source east, which the mirror will create"),
            (WARNING, "target: Create is not allowed in the cluster; each missing topic needs that right itself"),
        }

    story(MirrorClusters.merge, tell)


def test_rights_that_are_not_known_are_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        source, target = operator.sources["east"], operator.target
        monkeypatch.setattr(source, "ask", answering(source, with_rights(UNKNOWN, UNKNOWN)))

        async def refused(api_key: ApiKey, message: Any, **options: Any) -> Any:
            if getattr(message, "include_topic_authorized_operations", False):
                raise PeerError(ErrorCode.UNSUPPORTED_VERSION, "Metadata is too old")
            return await ask(api_key, message, **options)

        ask = target.ask
        monkeypatch.setattr(target, "ask", refused)
        notices = {text for severity, text in await found(operator) if severity is NOTICE}
        assert "source east: rights are not known: the cluster does not say which operations are allowed" in notices
        assert "target: rights are not known: Metadata is too old" in notices

    story(MirrorClusters.merge, tell)


def test_topics_that_are_denied_are_errors_in_source_and_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: a topic of the target that may not be seen is not taken for one that is missing."""

    async def tell(clusters: MirrorClusters, operator: Operator) -> None:
        for topic in ("east.orders", "east.clicks"):
            await clusters.target.create(topic, 2)

        def denies(name: str) -> dict[ApiKey, Callable[[Any], Any]]:
            def alter(response: Any) -> Any:
                for topic in response.topics:
                    if topic.name == name:
                        topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                return response

            return {ApiKey.METADATA: alter}

        source, target = operator.sources["east"], operator.target
        monkeypatch.setattr(source, "ask", answering(source, denies("orders")))
        monkeypatch.setattr(target, "ask", answering(target, denies("east.clicks")))
        assert await found(operator) == {
            (ERROR, "topic orders of source east: access denied"),
            (ERROR, "topic east.clicks of the target: access denied"),
        }

    story(MirrorClusters.merge, tell)


def test_together_mirrors_that_claim_the_same_topic_or_form_a_loop_are_found() -> None:
    """Claim: only those whose target answers are compared; a mirror by itself has nothing to be compared with."""

    async def told(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        checked = []
        for name in ("one", "two"):
            async with clusters.operator(clusters.copy(name)) as operator:
                checked.append(await check_file(operator, f"{name}.toml"))
        assert check_together(checked[:1]) == []
        together = check_together(checked)
        assert together
        assert all(isinstance(each, Found) and each.file == "" for each in together)
        assert any("orders" in each.text for each in together)
        away = Checked("two.toml", checked[1].plan, checked[1].sources, "away", [])
        assert check_together([checked[0], away]) == []

    run(told)
