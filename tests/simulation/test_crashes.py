"""A process may end in any call of a port: the next one serves, with everything that was acknowledged and promised to stay."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from moldau.model.errors import StorageError
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.options import draw_options
from moldau.testing.simulation.power_cuts import PowerCuts
from moldau.testing.simulation.process import Incarnation
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.workloads.recording import RecordedProducer, ensure_topic
from simulation.test_determinism import T0, read, write


def end(simulation: Simulation, *, power_cut: bool) -> None:
    if power_cut:
        simulation.host.power_cut()
    else:
        simulation.host.kill()


def crashes_of_a_start(seed: int, *, power_cut: bool, prepare: Callable[[Simulation], Any], check: Callable[[Simulation], Any]) -> int:
    """Crash at each port call of a start, then start again; how many starts were crashed."""

    async def crash_at(simulation: Simulation, call: int) -> bool:
        await prepare(simulation)
        process = simulation.host.start(crash_at=call, power_cut=power_cut)
        if not process.is_serving:
            assert process.failure is None
            assert simulation.host.start().failure is None
        has_crashed, process.crash_at = not process.is_serving, -1
        await check(simulation)
        return has_crashed

    for call in range(1, 10_000):
        simulation = Simulation(replace(draw_options(seed, faults=()), tree_latency_s=0.0, tree_linger_s=0.0))
        try:
            if not simulation.run(crash_at(simulation, call)):
                return call - 1
        finally:
            simulation.close()
    raise AssertionError("a start makes more calls than that")


@pytest.mark.parametrize("power_cut", [False, True])
def test_the_first_start_is_repeated_after_a_crash_in_any_call(power_cut: bool) -> None:
    async def nothing(simulation: Simulation) -> None:
        pass

    async def check(simulation: Simulation) -> None:
        await write(simulation, 0, 2)
        assert await read(simulation) == [b"0", b"1"]

    assert crashes_of_a_start(1, power_cut=power_cut, prepare=nothing, check=check) > 20


@pytest.mark.system
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_start_with_records_is_repeated_after_a_crash_in_any_call(power_cut: bool) -> None:
    async def prepare(simulation: Simulation) -> None:
        simulation.host.settings = {**simulation.host.settings, "log.flush.interval.messages": 1}
        simulation.host.start()
        await write(simulation, 0, 8)
        end(simulation, power_cut=power_cut)

    async def check(simulation: Simulation) -> None:
        assert await read(simulation) == [b"%d" % value for value in range(8)]
        await write(simulation, 8, 1)
        assert len(await read(simulation)) == 9

    assert crashes_of_a_start(2, power_cut=power_cut, prepare=prepare, check=check) > 20


def test_an_orderly_stop_ends_the_process_and_loses_nothing() -> None:
    async def main(simulation: Simulation) -> list[bytes | None]:
        simulation.host.start()
        await write(simulation, 0, 5)
        process = simulation.host.process
        assert isinstance(process, Incarnation)
        process.stop()
        await simulation.sleep(10)
        assert simulation.host.process is None
        simulation.host.start()
        return await read(simulation)

    simulation = Simulation(draw_options(3, faults=()))
    assert simulation.run(main(simulation)) == [b"%d" % value for value in range(5)]
    simulation.close()


def test_a_client_learns_of_a_kill_and_not_of_a_power_cut() -> None:
    """Its request has arrived; bytes that have not are sent again, and answered with a reset once the host has power."""

    async def main(simulation: Simulation, power_cut: bool) -> float:
        simulation.host.start()
        admin = SimulatedAdmin(simulation.client())
        await admin.create_topic("t")
        waiting = asyncio.ensure_future(admin.create_topic("u"))
        served = simulation.host.network.connections[-1].ends[1]
        before = served.taken
        while served.taken == before:
            await simulation.sleep(0.0001)
        end(simulation, power_cut=power_cut)
        begun = simulation.schedule.now
        simulation.clock.call_later(0.5, simulation.host.start)
        await waiting
        return simulation.schedule.now - begun

    waits = []
    for power_cut in (False, True):
        simulation = Simulation(draw_options(4, faults=()))
        waits.append(simulation.run(main(simulation, power_cut)))
        simulation.close()
    assert waits[0] < 2 <= waits[1]


def test_a_paused_process_answers_when_it_is_resumed() -> None:
    async def main(simulation: Simulation) -> float:
        simulation.host.start()
        admin = SimulatedAdmin(simulation.client())
        begun = simulation.schedule.now
        simulation.host.pause(3.0)
        await admin.create_topic("t")
        return simulation.schedule.now - begun

    simulation = Simulation(draw_options(5, faults=()))
    assert simulation.run(main(simulation)) >= 3.0
    simulation.close()


def test_what_a_log_took_after_it_was_last_seen_counts_as_lost_only_where_it_is() -> None:
    async def main(simulation: Simulation) -> None:
        host, history, disk = simulation.host, simulation.history, simulation.disk
        host.settings = {**host.settings, "log.flush.interval.messages": 1}
        cuts = PowerCuts(host, history, simulation.partitions)
        host.start()
        context = simulation.client("writer")
        await ensure_topic(context, "t", 1)
        producer = RecordedProducer(context, SimulatedProducer(context), history.add_producer("writer"))
        await producer.send(T0)
        assert host.broker is not None
        for partition in host.broker.partitions:
            cuts.see(partition)
        await producer.send(T0)
        disk.failing_syncs = 1
        last = producer.send(T0)
        await simulation.until(lambda: host.broker is None or not list(host.broker.partitions))
        assert disk.failed_syncs == 1
        host.kill()
        host.start()
        await last

    simulation = Simulation(replace(draw_options(5, faults=()), directories=2))
    simulation.run(main(simulation))
    assert [loss.from_offset for loss in simulation.history.losses] == [2]
    assert [*simulation.history.sends.offset] == [0, 1, 2]
    simulation.close()


def test_a_log_that_a_failed_sync_has_turned_back_has_lost_what_stood_where_it_shows_what_it_held_once() -> None:
    async def main(simulation: Simulation) -> None:
        host, history, disk = simulation.host, simulation.history, simulation.disk
        host.settings = {**host.settings, "log.index.size.max.bytes": 4096, "log.flush.interval.messages": 1000}
        PowerCuts(host, history, simulation.partitions)
        host.start()
        await write(simulation, 0, 4)
        simulation.partitions.number("t", 0)

        def sync() -> None:
            assert host.broker is not None
            (job,) = [partition.log.flush_job() for partition in host.broker.partitions if partition.topic_partition == T0]
            assert job is not None
            job.run()

        def damage() -> None:
            disk.flip("/data/t-0/00000000000000000000.log", 25, 0)
            disk.damaged["t-0"] = None

        sync()
        host.damage = damage
        host.kill()
        host.start()
        await write(simulation, 4, 2)
        disk.failing_syncs = 1
        with pytest.raises(StorageError):
            sync()
        host.kill()
        host.start()
        assert len(await read(simulation)) == 4, "nothing of the cut has reached the disk, nor the damage"

    simulation = Simulation(replace(draw_options(6, faults=()), directories=1))
    simulation.run(main(simulation))
    assert [(loss.from_offset, loss.epoch) for loss in simulation.history.losses] == [(0, 0), (0, 1)]
    simulation.close()
