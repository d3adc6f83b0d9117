"""What a cluster comes to when nothing goes wrong any more: all brokers know the same, all replicas are in sync and hold the same."""

from collections.abc import Iterator
from math import inf

from moldau.cluster import znodes
from moldau.model.identity import TopicPartition
from moldau.model.min_insync import effective_minimum
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.power_cuts import OFFSETS, TRANSACTIONS
from moldau.testing.simulation.process import Host
from moldau.testing.simulation.reader import batches_of
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_view import PartitionInTree, partitions_in, registration
from moldau.testing.simulation.waiting import NotConvergedError

CONVERGE_S = 180.0
COMPACTED = "compacted", OFFSETS, TRANSACTIONS, "_mirror_positions", "_mirror_producers", "_mirror_state"
"""Topics whose names begin so are compacted, by each replica at its own time."""
DELETED = "deleted"
"""Each replica deletes from the front of topics whose names begin so at its own time, perhaps all that there is."""


async def converge(simulation: Simulation, hosts: dict[int, Host]) -> None:
    """Wait until these brokers, by id, know the same and are in sync. NotConvergedError says what is missing."""
    until = simulation.schedule.now + CONVERGE_S
    while (missing := next(_missing(simulation, hosts), None)) is not None:
        if simulation.schedule.now > until:
            raise NotConvergedError(f"cluster: {missing}")
        await simulation.sleep(0.5)


def _missing(simulation: Simulation, hosts: dict[int, Host]) -> Iterator[str]:
    tree = simulation.tree
    if tree.get(znodes.CONTROLLER) is None:
        yield "there is no controller"
    for number, host in hosts.items():
        process, found = host.process, registration(tree, number)
        if process is None or not process.is_serving or host.broker is None:
            yield f"broker {number} does not serve"
        elif found is None or found[1] != process.session.session_id:
            yield f"broker {number} is not registered"
    partitions = list(partitions_in(tree))
    minimum = int(str(simulation.options.settings.get("min.insync.replicas", 1)))
    for partition in partitions:
        yield from _missing_of(partition, hosts, minimum)
    if leaving := tree.children(znodes.DELETE_TOPICS):
        yield f"topics are not deleted: {leaving}"
    names = {partition.topic: None for partition in partitions}
    for number, host in hosts.items():
        assert host.broker is not None
        if sorted(host.broker.metadata.topics) != sorted(names):
            yield f"broker {number} knows the topics {sorted(host.broker.metadata.topics)}, in the tree are {sorted(names)}"
        if sorted(host.broker.metadata.brokers) != sorted(hosts):
            yield f"broker {number} knows the brokers {sorted(host.broker.metadata.brokers)}"
        if host.broker.membership.suspects:
            yield f"the controller, broker {number}, suspects another one"


def _missing_of(partition: PartitionInTree, hosts: dict[int, Host], minimum: int) -> Iterator[str]:
    name = f"{partition.topic}-{partition.number}"
    state = partition.state
    replicas = [number for number in partition.replicas if number in hosts]
    if state is None or state.leader not in hosts:
        yield f"{name} has no leader: {state}"
        return
    if partition.is_moving and len(replicas) == len(partition.replicas):
        yield f"{name} is being reassigned: {partition.replicas}"
    if any(number not in state.isr for number in replicas):
        yield f"{name}: in sync are {state.isr} of {partition.replicas}"
    ends = {}
    for number in replicas:
        broker = hosts[number].broker
        hosted = None if broker is None else broker.replicas.hosted.get(TopicPartition(partition.topic, partition.number))
        if hosted is None or hosted.topic_id != partition.topic_id:
            yield f"{name}: broker {number} has no replica"
            return
        if hosted.machine.leader_epoch != state.leader_epoch:
            yield f"{name}: broker {number} is in epoch {hosted.machine.leader_epoch}, the tree in {state.leader_epoch}"
        ends[number] = hosted.log.log_end_offset, hosted.log.high_watermark
    if (
        len(state.isr) >= effective_minimum(minimum, partition.replicas)
        and len(dict.fromkeys((*ends.values(), *((end, end) for end, _ in ends.values())))) > 1
    ):
        yield f"{name}: end and high watermark are {ends}"
    for number, host in hosts.items():
        topic = None if host.broker is None else host.broker.metadata.topics.get(partition.topic)
        known = None if topic is None or partition.number >= len(topic.partitions) else topic.partitions[partition.number]
        if known is None or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch):
            yield f"{name}: broker {number} knows {known}, the tree has {state}"


def check_replicas(simulation: Simulation, hosts: dict[int, Host]) -> None:
    """Compare the bytes of all replicas. InvariantError if two differ in a batch that both have."""
    for partition in partitions_in(simulation.tree):
        if partition.topic.startswith(COMPACTED):
            continue
        first: dict[int, bytes] | None = None
        for number in partition.replicas:
            host = hosts.get(number)
            if host is None:
                continue
            found = dict(batches_of(host.disk, host.directories, f"{partition.topic}-{partition.number}"))
            if first is None:
                first = found
                continue
            for offset, data in found.items():
                if first.get(offset, data) != data:
                    raise InvariantError(f"{partition.topic}-{partition.number}: replicas differ at offset {offset}, on broker {number}")
            begin = min(first, default=inf if partition.topic.startswith(DELETED) else 0)
            missing = [offset for offset in found if offset >= begin and offset not in first]
            if missing:
                raise InvariantError(f"{partition.topic}-{partition.number}: only broker {number} has the batch at offset {missing[0]}")
