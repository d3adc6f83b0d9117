"""What a producer sees when brokers of a cluster fail, stop and hand over: three brokers of Moldau and of Apache Kafka, in turn in one run.

    python benchmarks/cluster_failover.py [--runs 3] [--faults kill,kill-controller,stop,stop-session,term,election]
                                          [--systems moldau,zookeeper,kafka] [--out FILE]

A topic of three partitions and three replicas; an idempotent producer (librdkafka, acks all) sends 500 messages a second to one partition,
whose leader is hit. Seconds from the signal:

* `leader_s`: until a broker that is left names another leader, asked every 10 ms
* `ack_s`: until the first acknowledgement after the longest time without one
* `rejoin_s`: from the start of the broker, or SIGCONT, until every broker says that all replicas are in sync

The faults: SIGKILL of a leader that is not the controller, and of one that is; SIGSTOP with a `socket.timeout.ms` of 2 s in the producer,
with the default sessions and with sessions of 2 s; SIGTERM. `election`: the second replica is made the preferred one and elected:
`leader_s`, and `gap_s`, the longest time without an acknowledgement, of librdkafka and of the Java client. All is read back: what was
acknowledged and is not there (`lost`), and what is there twice (`doubled`).
"""

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cluster_observer import Observer, wait_until
from cluster_systems import BROKERS, NAMES, ClusterSystem, names_of, running_clusters
from harness import in_turn
from java_stream import JavaStream
from measure import Results, load_average, spread
from steady_stream import Settings, SteadyStream

SETTLE_S = 3.0
"""Seconds of sending before anything happens."""
AFTER_ELECTION_S = 3.0
PARTITIONS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
"""Replicas: each broker is the preferred leader of one."""
FAULT_TIMES, ELECTION_TIMES = ("leader_s", "ack_s", "rejoin_s"), ("leader_s", "gap_s", "java_gap_s")
COUNTS = ("lost", "doubled", "reordered", "failed")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a leader."""

    test: str
    number: signal.Signals
    hits_controller: bool = False
    client: Settings = field(default_factory=dict)
    short_session: bool = False


FAULTS = {
    "kill": Fault("cluster: kill -9 of a leader", signal.SIGKILL),
    "kill-controller": Fault("cluster: kill -9 of a leader that is the controller", signal.SIGKILL, hits_controller=True),
    "stop": Fault("cluster: SIGSTOP of a leader", signal.SIGSTOP, client={"socket.timeout.ms": 2000}),
    "stop-session": Fault(
        "cluster: SIGSTOP of a leader, sessions of 2 s", signal.SIGSTOP, client={"socket.timeout.ms": 2000}, short_session=True
    ),
    "term": Fault("cluster: controlled stop of a leader", signal.SIGTERM),
}
ELECTION = "election"
ELECTION_TEST = "cluster: preferred election"
Figures = dict[str, Any]


def create(system: ClusterSystem, topic: str) -> None:
    """Make the topic with the replicas of `PARTITIONS`."""
    new = NewTopic(topic, len(PARTITIONS), replica_assignment=PARTITIONS)
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    for future in admin.create_topics([new]).values():
        future.result(30)


def delete(system: ClusterSystem, topic: str) -> None:
    """Remove the topic."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    for future in admin.delete_topics([topic]).values():
        future.result(30)


def measure_fault(system: ClusterSystem, observer: Observer, fault: Fault) -> Figures:
    """Hit the leader of a partition, wait until the producer has recovered, and until the broker is in sync again."""
    controller = system.controller()
    victim = controller if fault.hits_controller else next(each for each in BROKERS if each != controller)
    partition = victim - 1
    others = [each for each in BROKERS if each != victim]
    with SteadyStream(system.bootstrap, observer.topic, partition, fault.client) as stream:
        time.sleep(SETTLE_S)
        steady_gap_s = stream.longest_gap(time.monotonic() - SETTLE_S / 2).seconds
        begun = time.monotonic()
        system.send_signal(victim, fault.number)
        what = f"{system.name}: another broker than {victim} leads {observer.topic}-{partition}"
        leader_s = wait_until(lambda: observer.is_led(partition, others, asked=others), what)
        what = f"{system.name}: messages to {observer.topic}-{partition} are acknowledged again"
        wait_until(lambda: stream.flows(max(begun, stream.longest_gap(begun).ended)), what, pause_s=0.05)
        ack_s = stream.longest_gap(begun).ended - begun
        if fault.number is signal.SIGSTOP:
            again = time.monotonic()
            system.send_signal(victim, signal.SIGCONT)
        else:
            system.wait_ended(victim)
            again = time.monotonic()
            system.start_broker(victim)
        observer.wait_whole()
        rejoin_s = time.monotonic() - again
        observer.lead_as_preferred()
    times = {"leader_s": leader_s, "ack_s": ack_s, "rejoin_s": rejoin_s, "steady_gap_s": steady_gap_s}
    return {**_rounded(times), **stream.outcome()._asdict(), "victim": victim, "controller": controller}


def measure_election(system: ClusterSystem, observer: Observer) -> Figures:
    """Elect another preferred leader, with a producer of each kind."""
    partition = 0
    with (
        SteadyStream(system.bootstrap, observer.topic, partition, {}) as stream,
        JavaStream(system.bootstrap, observer.topic, partition) as java,
    ):
        preferred = observer.prefer_other(partition)
        wait_until(lambda: java.report().acknowledged > 0, f"{system.name}: the Java producer gets acknowledgements", pause_s=0.2)
        time.sleep(SETTLE_S)
        before = java.report()
        steady_gap_s = stream.longest_gap(time.monotonic() - SETTLE_S / 2).seconds
        begun = time.monotonic()
        leader_s = observer.elect(partition, preferred)
        time.sleep(AFTER_ELECTION_S)  # librdkafka may look for the leader a second later
        after, gap = java.report(), stream.longest_gap(begun)
    if not after.acknowledged:
        raise SystemExit(f"{system.name}: the Java producer gets no acknowledgements after the election")
    times = {"leader_s": leader_s, "gap_s": gap.seconds, "java_gap_s": after.gap_s, "steady_gap_s": steady_gap_s}
    counts = {"java_failed": before.failed + after.failed, "failed": stream.failed}
    return {**_rounded(times), **counts}


def summary_of(runs: Sequence[Figures], times: Sequence[str]) -> Figures:
    """Spread of these times, sums of the counts."""
    spreads = {key: spread([run[key] for run in runs]) for key in times}
    return {**spreads, **{key: sum(run[key] for run in runs) for key in COUNTS if key in runs[0]}}


def measure(systems: Sequence[ClusterSystem], results: Results, faults: Sequence[str], runs: int) -> None:
    """These faults, each so often, the systems in turn."""
    for name in faults:
        test, times = (FAULTS[name].test, FAULT_TIMES) if name in FAULTS else (ELECTION_TEST, ELECTION_TIMES)
        found: dict[str, list[Figures]] = {}
        for run in range(runs):
            for system in in_turn(systems, run):
                topic, load = f"{name}-{run}", load_average()
                create(system, topic)
                with Observer(system, topic) as observer:
                    observer.wait_whole()
                    observer.lead_as_preferred()
                    figures = measure_fault(system, observer, FAULTS[name]) if name in FAULTS else measure_election(system, observer)
                delete(system, topic)
                found.setdefault(system.name, []).append(figures)
                results.write(system=system.name, test=test, run=run, load=load, **figures)
        for system_name, figures_of_runs in found.items():
            results.write(system=system_name, test=test, summary=True, **summary_of(figures_of_runs, times))


def faults_of(text: str) -> list[str]:
    """Names of faults, parted by commas."""
    names = text.split(",")
    if wrong := [each for each in names if each not in FAULTS and each != ELECTION]:
        raise argparse.ArgumentTypeError(f"no such fault: {', '.join(wrong)}; there are {', '.join([*FAULTS, ELECTION])}")
    return names


def main() -> None:
    """The faults of the default sessions with one set of clusters, those of short sessions with another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--faults", type=faults_of, default=[*FAULTS, ELECTION], metavar="FAULT,...")
    parser.add_argument("--systems", type=names_of, default=[*NAMES], metavar="SYSTEM,...")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    for short_session in (False, True):
        faults = [each for each in given.faults if (each in FAULTS and FAULTS[each].short_session) == short_session]
        if faults:
            with running_clusters(given.systems, short_session=short_session) as systems:
                measure(systems, results, faults, given.runs)


def _rounded(times: Mapping[str, float]) -> Figures:
    return {key: round(value, 3) for key, value in times.items()}


if __name__ == "__main__":
    main()
