"""A process of a mirror that runs the real program: it looks at the clusters, shares the work, follows orders and reports."""

from collections.abc import Mapping
from contextlib import suppress
from random import Random

from moldau.mirror.partitions import SourcePartition
from moldau.mirror.patterns import NamePatterns, parse_pattern
from moldau.mirror.plan.values import COPY_SOURCE, Limits, MirrorPlan, Mode, Source, Sync, Target
from moldau.mirror.process import MirrorProcess
from moldau.mirror.sharing.work import FencedInstanceError
from moldau.mirror.state.reports import OsProcess
from moldau.model.host_port import Address
from moldau.ports.clock import Clock
from moldau.ports.transport import Network
from moldau.testing.simulation.mirrors.work import SOURCE, Progress, Sharing, WorkPlan

assert COPY_SOURCE == SOURCE, "the only source of a copy has that name"


class ProgramWork:
    """See the module. Made on the loop of its process. A :class:`moldau.testing.simulation.mirrors.work.Work`."""

    def __init__(
        self, plan: WorkPlan, source: tuple[Address, ...], target: tuple[Address, ...], network: Network, clock: Clock, random: Random
    ) -> None:
        self._plan = plan
        mode = Mode.COPY if plan.sharing is Sharing.COPY else Mode.MERGE
        file = MirrorPlan(
            plan.mirror,
            mode,
            (Source(SOURCE, source),),
            Target(target),
            NamePatterns(tuple(parse_pattern(name) for name in plan.topics), ()),
            sync=Sync(configs=False),
            limits=Limits(buffer_bytes=plan.limits.response_bytes),
        )
        self._process = MirrorProcess(file, plan.instance, network, clock, random, OsProcess("host", 1))

    async def run(self) -> None:
        """See `Work`."""
        with suppress(FencedInstanceError):
            await self._process.run()

    def progress(self) -> Mapping[SourcePartition, Progress]:
        """See `Work`."""
        process, control = self._process, self._process.control
        written = process.written()
        found = {
            SourcePartition(origin.source, problem.topic_id, origin.topic, number): Progress(None, problem.why)
            for origin, problem in process.problems.items()
            if problem.why is not None
            for number in range(self._plan.topics[origin.topic])
        }
        for each in control.partitions.values():
            halted = control.halted.get(each)
            found[each] = Progress(written[each].offset if each in written else None, None if halted is None else halted[0])
        return found
