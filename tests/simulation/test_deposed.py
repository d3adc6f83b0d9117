"""Clients of runs have to know whether a leader or a controller that answers was deposed: it may not know it yet."""

from moldau.testing.simulation.process import PORT
from simulation.scenarios import scenario
from simulation.small_cluster import CONTROL, CONTROLLER, FOLLOWER, LEADER, T0, Cluster


@scenario(suspicion_timeout_ms=60_000)
async def test_since_when_a_leader_is_deposed_is_known_until_it_knows_it_itself(cluster: Cluster) -> None:
    """Claim: as long as it answers, a look-up may tell of the time of the election; then of now."""
    invariants = cluster.invariants
    assert invariants is not None
    assert invariants.deposed_since(T0) is None
    cluster.hold(cluster.requests(*CONTROL, to=LEADER))
    begun = cluster.sim.schedule.now
    await cluster.elect(CONTROLLER)
    assert cluster.leads(LEADER)
    since = invariants.deposed_since(T0)
    assert since is not None
    assert begun < since <= cluster.sim.schedule.now
    cluster.release()
    await cluster.until(lambda: not cluster.leads(LEADER))
    assert invariants.deposed_since(T0) is None


@scenario()
async def test_the_controller_is_the_broker_whose_node_says_so(cluster: Cluster) -> None:
    """Claim: whatever a broker takes itself for."""
    context = cluster.sim.client()
    rules = [context.is_controller((host.name, PORT)) for host in cluster.sim.hosts]
    assert rules == [True, False, False]
    cluster.kill(CONTROLLER)
    await cluster.until(lambda: cluster.controller() in (LEADER, FOLLOWER))
    assert not context.is_controller((cluster.host(CONTROLLER).name, PORT))
