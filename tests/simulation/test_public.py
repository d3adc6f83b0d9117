"""What users get: their coroutines against a simulated broker, failures with the line that repeats them, and the page that shows it."""

import re

import pytest

from moldau.model.identity import TopicPartition
from moldau.testing.simulation import World, simulate
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


def test_unknown_faults_are_refused() -> None:
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
