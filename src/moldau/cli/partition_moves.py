"""What commands that move replicas share: what there is, how a plan is shown, and carrying it out with progress until a time is over.

A plan is checked whole before anything is sent. Brokers complete what has begun whether or not a command waits for it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from moldau.cli.move_throttle import remove_throttle, set_throttle
from moldau.cli.options import SECONDS
from moldau.cli.output import counted, print_json, print_table, say
from moldau.client.errors import may_pass
from moldau.client.placement import Placement, Replicas
from moldau.client.reassignments import Reassignment, Reassignments
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.metadata import PartitionMetadata

F = TypeVar("F", bound=Callable[..., Any])

POLL_S = 0.2
REPORT_EVERY_S = 2.0
FORMAT_VERSION = 1
"""Of Kafka's JSON format."""


class ClusterLayout(NamedTuple):
    """The live brokers with their racks, all partitions, those of internal topics too, and the reassignments that are under way."""

    racks: Mapping[int, str | None]
    partitions: "Mapping[TopicPartition, PartitionMetadata]"
    moving: Mapping[TopicPartition, Reassignment]

    @property
    def placement(self) -> Placement:
        """The replicas by partition, as they are when what is under way is completed."""
        replicas = {partition: tuple(map(int, found.replicas)) for partition, found in self.partitions.items()}
        return replicas | {partition: move.target for partition, move in self.moving.items() if partition in replicas}

    def of_topics(self, names: Iterable[str]) -> Placement:
        """The placement of some topics."""
        wanted = dict.fromkeys(names)
        return {partition: replicas for partition, replicas in self.placement.items() if partition.topic in wanted}


def wait_option(default_s: float | None) -> Callable[[F], F]:
    """``--wait SECONDS``, as the parameter `wait`."""
    text = "How long to wait until replicas have moved; brokers continue with them after it."
    return click.option("--wait", metavar="SECONDS", type=SECONDS, default=default_s, show_default=default_s is not None, help=text)


def read_layout(cluster: "Cluster") -> ClusterLayout:
    """Asked for now."""
    moving, found = Reassignments(cluster).ongoing(), cluster.metadata()
    partitions = {TopicPartition(name, each.partition): each for name, topic in sorted(found.topics.items()) for each in topic.partitions}
    return ClusterLayout({int(broker): rack for broker, rack in sorted(found.racks.items())}, partitions, moving)


def check_topics(cluster: "Cluster", names: Iterable[str]) -> None:
    """RequestFailedError for the first topic that does not exist."""
    for name in names:
        cluster.topic(name)


def check_brokers(brokers: Iterable[int], layout: ClusterLayout, where: str = "") -> None:
    """click.ClickException for brokers that are not live: nothing can be moved to them."""
    missing = [broker for broker in dict.fromkeys(brokers) if broker not in layout.racks]
    if missing:
        live = ", ".join(map(str, layout.racks))
        names = ", ".join(map(str, missing))
        one = len(missing) == 1
        what = f"broker {names} is" if one else f"brokers {names} are"
        raise click.ClickException(f"{where}{what} not live (live are {live}); nothing was changed")


def changes(before: Mapping[TopicPartition, Replicas], after: Mapping[TopicPartition, Replicas]) -> Placement:
    """The partitions whose replicas, or their order, differ."""
    return {partition: replicas for partition, replicas in after.items() if replicas != before[partition]}


def plan_document(before: Mapping[TopicPartition, Replicas], targets: Mapping[TopicPartition, Replicas]) -> dict[str, Any]:
    """A plan in Kafka's format, which `moldau partition reassign` and Kafka's tool read, with the replicas before."""
    return {
        "version": FORMAT_VERSION,
        "partitions": [
            {"topic": where.topic, "partition": where.partition, "replicas": list(replicas), "before": list(before[where])}
            for where, replicas in targets.items()
        ],
    }


def print_plan(before: Mapping[TopicPartition, Replicas], targets: Mapping[TopicPartition, Replicas], *, as_json: bool) -> None:
    """Replicas before and after, and how many are copied; as JSON in Kafka's format."""
    if as_json:
        print_json(plan_document(before, targets))
        return
    if targets:
        rows = [(where, joined(before[where]), joined(replicas)) for where, replicas in targets.items()]
        print_table(("partition", "before", "after"), rows, drop=())
    copies = sum(broker not in before[where] for where, replicas in targets.items() for broker in replicas)
    leaders = sum(before[where][0] != replicas[0] for where, replicas in targets.items())
    parts = f"{counted(copies, 'replica')} to copy, {counted(leaders, 'preferred leader')} to move"
    say(f"{counted(len(targets), 'partition')} to change: {parts}")


def joined(brokers: Iterable[int]) -> str:
    """``1,2,3``, or a dash."""
    return ",".join(map(str, brokers)) or "-"


def begin(
    cluster: "Cluster", before: Mapping[TopicPartition, Replicas], targets: Mapping[TopicPartition, Replicas], throttle: int | None
) -> list[TopicPartition]:
    """Begin reassignments, throttled to so many bytes per second: those that have begun. Errors as for `alter`."""
    if throttle is not None and targets:
        set_throttle(cluster, throttle, before, targets)
    return alter(cluster, targets)


def alter(cluster: "Cluster", targets: Mapping[TopicPartition, Sequence[int] | None]) -> list[TopicPartition]:
    """Begin or cancel reassignments: those that have begun. Each that is refused is reported; the last such error is raised if all are."""
    refused = Reassignments(cluster).alter(targets) if targets else {}
    begun = [partition for partition in targets if partition not in refused]
    errors = list(refused.values())
    for error in errors if begun else errors[:-1]:
        say(f"Error: {error.code.name}: {error.message}", err=True)
    if errors and not begun:
        raise errors[-1]
    return begun


class MoveProgress:
    """Waits until reassignments are completed and preferred leaders lead, and reports how far it is, until `wait_s` are over."""

    def __init__(
        self,
        cluster: "Cluster",
        wait_s: float,
        *,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = Reassignments(cluster)
        self._sleep = sleep
        self._monotonic = monotonic
        self._end = monotonic() + wait_s
        self._next_report = monotonic() + REPORT_EVERY_S

    def wait_moved(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Until no reassignment of these is under way; those of which one still is when the time is over."""
        return self._until(self._moving, partitions, "moved")

    def wait_led(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Have preferred leaders elected, until they lead; the partitions that are still led elsewhere when the time is over."""
        return self._until(self._led_elsewhere, partitions, "led by preferred leaders")

    def _moving(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        ongoing = self._requests.ongoing()
        return [each for each in partitions if each in ongoing]

    def _led_elsewhere(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        outcomes = self._requests.elect(partitions)
        return [each for each in partitions if (error := outcomes.get(each)) is not None and error.code not in _LED]

    def _until(
        self, check: Callable[[list[TopicPartition]], list[TopicPartition]], partitions: Iterable[TopicPartition], what: str
    ) -> list[TopicPartition]:
        remaining = list(partitions)
        count = reported = len(remaining)
        while remaining:
            try:
                remaining = check(remaining)
            except (WorldError, PeerError) as trouble:
                if not may_pass(trouble) or self._monotonic() >= self._end:
                    raise
            now = self._monotonic()
            if now >= self._end:
                break
            if now >= self._next_report and len(remaining) != reported:
                self._next_report, reported = now + REPORT_EVERY_S, len(remaining)
                say(f"{count - len(remaining)} of {counted(count, 'partition')} {what}", err=True)
            if remaining:
                self._sleep(POLL_S)
        return remaining


_LED = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Outcomes of an election after which there is nothing to wait for: the preferred leader leads, or the topic was deleted meanwhile."""


def carry_out(
    cluster: "Cluster",
    before: Mapping[TopicPartition, Replicas],
    targets: Mapping[TopicPartition, Replicas],
    progress: MoveProgress,
    others: Iterable[TopicPartition] = (),
    *,
    throttle: int | None,
) -> None:
    """Begin reassignments, wait until the replicas have moved, and have preferred leaders elected, for `others` too.

    What is not done in time or was refused is reported, and is a click.ClickException at the end.
    """
    begun = begin(cluster, before, targets, throttle)
    waited = [*begun, *others]
    moving = dict.fromkeys(progress.wait_moved(waited))
    if throttle is not None and not moving:
        lift_throttle(cluster, waited)
    led_elsewhere = progress.wait_led([each for each in waited if each not in moving])
    raise_problems(
        [
            *(f"partition {each} was not changed" for each in targets if each not in begun),
            *(f"partition {each} still moves" for each in moving),
            *(f"partition {each} is not led by its preferred leader yet" for each in led_elsewhere),
        ]
    )


def lift_throttle(cluster: "Cluster", moved: Iterable[TopicPartition]) -> None:
    """Remove the throttle of partitions that have moved; the rates of brokers too, unless others still move."""
    if remove_throttle(cluster, [each.topic for each in moved], rates=not Reassignments(cluster).ongoing()):
        say("throttle removed", err=True)


def raise_problems(problems: Sequence[str]) -> None:
    """click.ClickException with the last, after a line for each of the others."""
    for each in problems[:-1]:
        say(each, err=True)
    if problems:
        raise click.ClickException(problems[-1])
