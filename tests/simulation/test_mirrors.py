"""Two clusters and a mirror: runs with faults are clean, and what was made again is not mixed with what was mirrored."""

import pytest

from moldau.mirror.partitions import Halt
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.mirrors.fleet import mirror_options_of
from moldau.testing.simulation.mirrors.process import MirrorHost, MirrorProcess
from moldau.testing.simulation.mirrors.topics import RENEWED, create_topics
from moldau.testing.simulation.mirrors.trial import run_mirror_trial
from moldau.testing.simulation.mirrors.work import Progress, WorkPlan
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.workloads.recording import ensure_topic

pytestmark = pytest.mark.system


@pytest.mark.parametrize("seed", [*range(1, 11), 226])
def test_a_seed_is_clean(seed: int) -> None:
    verdict = run_mirror_trial(mirror_options_of(seed))
    assert not verdict.failures, str(verdict)


@pytest.mark.parametrize("seed", [26, 80])
def test_a_seed_that_fails_back_is_clean(seed: int) -> None:
    options = mirror_options_of(seed)
    assert options.fails_back
    verdict = run_mirror_trial(options)
    assert not verdict.failures, str(verdict)


def test_a_run_is_repeated() -> None:
    assert len({run_mirror_trial(mirror_options_of(1)).crc for _ in range(2)}) == 1


def test_a_topic_that_was_made_again_while_no_process_ran_is_not_mixed_with_the_former_one() -> None:
    source = Simulation(Options(1))
    target = Simulation(Options(2), name="target-", beside=source)
    host = MirrorHost("mirror", WorkPlan("1", {RENEWED: 1}), source, target)

    def running() -> MirrorProcess:
        assert host.process is not None
        return host.process

    async def write(count: int) -> None:
        await ensure_topic(source.client(), RENEWED, 1)
        async with SimulatedProducer(source.client()) as producer:
            for _ in range(count):
                await producer.send_and_wait(RENEWED, b"x", partition=0)

    def progresses() -> list[Progress]:
        work = running().work
        return [] if work is None else list(work.progress().values())

    def halts() -> list[Halt]:
        return [progress.halt for progress in progresses() if progress.halt is not None]

    def written() -> list[int]:
        return [progress.position for progress in progresses() if progress.position is not None]

    async def main() -> None:
        source.host.start()
        target.host.start()
        await create_topics(target.client("setup"), compacts_positions=False)
        await write(5)
        host.start()
        await source.until(lambda: written() == [5])
        host.may_start = lambda _host: False
        host.end()
        await SimulatedAdmin(source.client()).delete_topic(RENEWED)
        await write(9)
        host.start()
        await source.until(lambda: bool(halts()))
        await source.sleep(5.0)

    try:
        source.run(main())
        assert halts() == [Halt.RECREATED]
        assert written() == []
    finally:
        host.may_start = lambda _host: False
        host.end()
        target.close()
        source.close()
