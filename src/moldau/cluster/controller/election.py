"""Who leads a partition.

A leader was elected in one *incarnation*: one registration of its broker, known by its `created_id`. A broker that comes back, however
soon, is another one: it may have lost the tail of its log, so that its partitions get a new epoch. One rule holds for a first start, a
restart, an unnoticed bounce, and a store that was restored from a backup.
"""

from collections.abc import Mapping, Sequence

from moldau.cluster.znodes import PartitionState

NO_LEADER = -1


def elect(
    state: PartitionState, replicas: Sequence[int], live: Mapping[int, int], controller_epoch: int, floor: int = 0
) -> PartitionState | None:
    """The state after an election, or None if none is needed or no replica can lead where none does.

    `live` has the incarnation of each live broker. `floor` is the latest epoch that a log of the partition knows. The first live replica
    in the in-sync set leads, with an epoch after the last one and after the floor. Without one the partition has no leader, and the
    in-sync set stays, since only its members have all records.
    """
    is_led = state.leader != NO_LEADER and live.get(state.leader) == state.leader_broker_epoch
    if is_led and state.leader_epoch >= floor:
        return None
    epoch = max(state.leader_epoch, floor) + 1
    leader = next((replica for replica in replicas if replica in state.isr and replica in live), NO_LEADER)
    if leader != NO_LEADER:
        return PartitionState(leader, epoch, tuple(replica for replica in state.isr if replica in live), controller_epoch, live[leader])
    if state.leader == NO_LEADER:
        return None
    return PartitionState(NO_LEADER, epoch, state.isr, controller_epoch)
