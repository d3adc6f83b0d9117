"""What users get: their coroutines against a simulated broker, failures with the line that repeats them, and the page that shows it."""

import re

import pytest

from moldau.model.identity import TopicPartition
from moldau.testing.simulation import World, simulate
from moldau.testing.simulation.cluster_world import ClusterWorld
from moldau.testing.simulation.waiting import NotConvergedError
from support.pages import ROOT

PAGE = ROOT / "docs" / "simulation.md"


@simulate(seeds=range(5), faults=("kill", "disconnect", "slow_disk"))
async def test_what_a_producer_sent_is_read(sim: World) -> None:
    await sim.create_topic("t", 2)
    producer = sim.producer()

    async def send() -> None:
        for number in range(50):
            await producer.send_and_wait("t", b"%d" % number, partition=number % 2)

    sim.start(send())
    await sim.sleep(30)
    await sim.heal()
    assert await sim.read("t") == [b"%d" % number for half in (0, 1) for number in range(half, 50, 2)]


@simulate(seeds=range(5), faults=("kill", "disconnect"))
async def test_a_group_resumes_after_faults(sim: World) -> None:
    await sim.create_topic("t")
    async with sim.producer() as producer:
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number)
    consumer = sim.consumer(group="g", topics=["t"])
    seen: list[bytes | None] = []
    while len(seen) < 20:
        seen += [message.value for message in await consumer.consume(5, 1.0)]
    assert seen == [b"%d" % number for number in range(20)]
    await consumer.commit()
    assert await consumer.committed([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 20}


@simulate(seeds=range(3), brokers=3)
async def test_a_cluster_keeps_everything_when_a_leader_is_killed_and_another_cut_off(sim: ClusterWorld) -> None:
    await sim.create_topic("t")
    await sim.wait_until_in_sync("t")
    async with sim.producer() as producer:
        await producer.send_and_wait("t", b"0")
        killed = await sim.leader_of("t")
        sim.kill(killed)
        await producer.send_and_wait("t", b"1")
        assert await sim.leader_of("t") != killed
        await sim.restart(killed)
        await sim.wait_until_in_sync("t")
        isolated = await sim.leader_of("t")
        sim.isolate(isolated, seconds=60)
        while await sim.leader_of("t") == isolated:
            await sim.sleep(1)
        await producer.send_and_wait("t", b"2")
        await sim.heal()
        await producer.send_and_wait("t", b"3")
    assert await sim.read("t") == [b"0", b"1", b"2", b"3"]


@simulate(seeds=range(2), faults=("kill", "cut_link", "roll", "fail_sync", "fail_directory"), brokers=3)
async def test_a_cluster_has_faults_at_moments_of_chance_too(sim: ClusterWorld) -> None:
    await sim.create_topic("t")
    async with sim.producer() as producer:
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number)
            await sim.sleep(1)
    await sim.heal()
    assert await sim.read("t") == [b"%d" % number for number in range(20)]


@simulate(seeds=range(2), brokers=3)
async def test_a_follower_that_is_paused_or_cut_off_falls_out_of_sync_and_catches_up(sim: ClusterWorld) -> None:
    await sim.create_topic("t")
    await sim.wait_until_in_sync("t")
    leader, controller = await sim.leader_of("t"), await sim.controller()
    follower = next(each for each in sim.broker_ids if each not in (leader, controller))
    async with sim.producer() as producer:
        sim.partition(leader, follower, one_way=True)
        await sim.wait_until_in_sync("t", replicas=2)
        await producer.send_and_wait("t", b"0")
        sim.reconnect()
        await sim.wait_until_in_sync("t")
        sim.pause(follower, 30)
        await producer.send_and_wait("t", b"1")
        await sim.heal()
    assert await sim.read("t") == [b"0", b"1"]


def test_a_failure_names_the_line_that_repeats_it() -> None:
    @simulate(seeds=[3, 7], faults=("pause",), settings={"num.partitions": 2})
    async def fails(sim: World) -> None:
        assert sim.simulation.options.seed == 3, "planted"

    with pytest.raises(AssertionError, match="planted") as raised:
        fails()
    assert raised.value.__notes__ == ["again: @simulate(seeds=[7], faults=('pause',), settings={'num.partitions': 2})"]


def test_what_a_started_coroutine_raises_fails_the_test() -> None:
    @simulate(seeds=[1])
    async def fails(sim: World) -> None:
        async def raises() -> None:
            raise RuntimeError("planted")

        sim.start(raises())
        await sim.sleep(1.0)

    with pytest.raises(RuntimeError, match="planted"):
        fails()


def test_a_failure_of_a_cluster_is_repeated_with_as_many_brokers() -> None:
    @simulate(seeds=[1], brokers=2)
    async def fails(sim: ClusterWorld) -> None:
        assert await sim.leader_of("t") == 0, "planted"

    with pytest.raises(NotConvergedError, match="waited for in vain: t-0 has a leader") as raised:
        fails()
    assert raised.value.__notes__ == ["again: @simulate(seeds=[1], faults=(), brokers=2)"]


def test_unknown_faults_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no such faults: cut_link; there are kill, .*, client_death$"):
        simulate(faults=("cut_link",))
    with pytest.raises(ValueError, match="no such faults: earthquake; there are kill"):
        simulate(faults=("earthquake",))


def test_the_examples_of_the_page_run() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) >= 1
    for example in examples:
        names: dict[str, object] = {}
        exec(compile(example, str(PAGE), "exec"), names)
        for name, value in list(names.items()):
            if name.startswith("test_") and callable(value):
                value()
