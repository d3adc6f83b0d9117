"""A simulated disk that is slow for a while is slow no longer than a healed cluster waits for it."""

from random import Random

from moldau.testing.simulation.convergence import CONVERGE_S
from moldau.testing.simulation.disk import DiskOptions, SimulatedDisk


def test_no_job_takes_longer_than_a_healed_cluster_waits_for() -> None:
    """Seed 9875: the last job of a stop began while the disk was slow, and was to take six minutes."""
    disk = SimulatedDisk(Random(1), DiskOptions(sync_s=0.02, slow_rate=0.5), lambda: 0)
    disk.slowness = 1000.0
    seconds = [disk.job_s() for _ in range(100)]
    assert 10 < max(seconds) < CONVERGE_S / 2
