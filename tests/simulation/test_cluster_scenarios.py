"""The last replica standing (K5), as an interleaving that must not hurt here, and does without its cure; and what holds back messages."""

import pytest

from moldau.protocol.api_keys import ApiKey
from moldau.testing.simulation.mutant import Mutant
from simulation.scenarios import Scenario, check_cure, cures_of, known, scenario
from simulation.small_cluster import CONTROLLER, FOLLOWER, IDS, LEADER, Cluster


@scenario(known("commit with fewer in sync than the minimum"))
async def test_k5_the_last_replica_in_sync_has_shown_nothing_that_the_others_lack(cluster: Cluster) -> None:
    """KIP-966: it loses what it had alone. The others have restarted uncleanly too, and wait for it."""
    await cluster.write(b"0", b"1")
    cluster.kill(CONTROLLER, FOLLOWER)
    await cluster.in_sync(LEADER)
    await cluster.append(LEADER, b"alone")
    assert (cluster.end(LEADER), cluster.log(LEADER).high_watermark) == (3, 2)
    cluster.power_cut(LEADER)
    cluster.start(LEADER)
    await cluster.sleep(10.0)
    assert cluster.state().leader == -1
    cluster.start(CONTROLLER, FOLLOWER)
    await cluster.write(b"2")
    await cluster.ends_with(b"0", b"1", b"2")


@scenario()
async def test_a_hold_knows_requests_and_responses_by_their_kind_and_ends(cluster: Cluster) -> None:
    cluster.hold(cluster.requests(ApiKey.PRODUCE, to=LEADER))
    late = cluster.write_later(b"0")
    await cluster.until(lambda: cluster.network.held == 1)
    assert await cluster.producer.partitions_for("t") == 1
    await cluster.sleep(0.5)
    assert cluster.end(LEADER) == 0
    assert cluster.isr() == [*IDS]
    cluster.release()
    await late
    assert cluster.end(LEADER) == 1


@pytest.mark.system
@pytest.mark.parametrize(("test", "cure"), cures_of(globals()))
def test_a_scenario_fails_without_its_cure(test: Scenario, cure: tuple[Mutant, ...]) -> None:
    check_cure(test, cure)
