"""A run of two clusters and their mirrors, and the verdict on it: as `simulation.trial`, with more judges."""

import time
import traceback
from collections.abc import Mapping
from typing import TextIO

from moldau.testing.history.checker import check
from moldau.testing.simulation.mirrors.copy_run import CopyRun
from moldau.testing.simulation.mirrors.fleet import Kind, MirrorOptions
from moldau.testing.simulation.mirrors.merge_run import MergeRun
from moldau.testing.simulation.mirrors.ring_run import RingRun
from moldau.testing.simulation.mirrors.run import MirrorRun
from moldau.testing.simulation.probes import SimulatedProbe
from moldau.testing.simulation.trial import BugHandler, TrialResult

RUNS: Mapping[Kind, type[MirrorRun]] = {Kind.MERGE: MergeRun, Kind.RING: RingRun, Kind.COPY: CopyRun}


def run_mirror_trial(options: MirrorOptions, *, transcript: TextIO | None = None) -> TrialResult:
    """Run a seed. What happens is written to `transcript`, if there is one; the run is the same without it."""
    begun = time.process_time()
    verdict = TrialResult(options.seed)
    bugs = BugHandler()
    with bugs, SimulatedProbe(options.seed) as probe:
        run = RUNS[options.kind](options)
        probe.on_reached["producers: evicted one"] = run.source.history.evicted
        try:
            run.source.run(run.run(transcript))
        except Exception as error:
            verdict.failures.append("".join(traceback.format_exception(error)).strip())
        verdict.failures += bugs.found
        verdict.reached = probe.counts
        run.report(verdict)
        run.close()
    if not verdict.failures:
        verdict.failures = [str(anomaly) for anomaly in check(run.source.history)[1]]
    verdict.cpu_s = time.process_time() - begun
    return verdict
