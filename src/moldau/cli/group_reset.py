"""What ``moldau group reset`` would do, and doing it."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from moldau.cli.group_view import ends_of
from moldau.cli.offsets import StartPoint, find_offsets
from moldau.cli.output import print_json, print_table, say
from moldau.client.groups import GroupOffset, Groups
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where to, and for which partitions: those of `topics` (none: all that have a commit), or only `partitions` of the one topic."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    to: StartPoint | int | Mapping[TopicPartition, int]
    """A point, by how many offsets to shift, or an offset for each partition."""


@dataclass(frozen=True, slots=True)
class ResetStep:
    """One partition: what is committed (None: nothing), what will be, and a notice."""

    where: TopicPartition
    before: int | None
    after: int
    notice: str = ""


def check_one_topic(topics: Sequence[str], partitions: Sequence[int]) -> None:
    """Numbers of partitions mean something only within one topic."""
    if partitions and len(set(topics)) != 1:
        raise click.UsageError("--partition needs exactly one --topic")


def check_wishes(
    group: str, topics: tuple[str, ...], partitions: tuple[int, ...], *, to: StartPoint | None, shift_by: int | None, from_file: str | None
) -> ResetTarget:
    """What was asked for; click.UsageError where that is not valid."""
    check_one_topic(topics, partitions)
    if [to, shift_by, from_file].count(None) != 2:
        raise click.UsageError("give one of --to, --shift-by and --from-file")
    if from_file is not None:
        if topics:
            raise click.UsageError("--from-file names topics and partitions itself; leave --topic out")
        with click.open_file(from_file, encoding="utf-8") as file:
            return ResetTarget((), (), parse_file(group, file, from_file))
    if shift_by is not None:
        return ResetTarget(topics, partitions, shift_by)
    assert to is not None
    return ResetTarget(topics, partitions, to)


def parse_file(group: str, lines: Iterable[str], name: str) -> dict[TopicPartition, int]:
    """Offsets in lines of ``topic,partition,offset``, or with the group before them; lines of other groups are passed over."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        fields = [field.strip() for field in row]
        if not any(fields):
            continue
        if len(fields) == 4:
            if fields[0] != group:
                continue
            del fields[0]
        if len(fields) != 3 or not fields[0] or not _is_number(fields[1]) or not _is_number(fields[2]):
            raise click.ClickException(f"{name}:{number}: neither topic,partition,offset nor group,topic,partition,offset")
        where = TopicPartition(fields[0], int(fields[1]))
        if where in offsets:
            raise click.ClickException(f"{name}:{number}: partition {where} comes twice")
        offsets[where] = int(fields[2])
    if not offsets:
        raise click.ClickException(f"{name}: no offsets for group {group}")
    return offsets


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= OFFSET_MAX


def plan_reset(cluster: "Cluster", group: str, wish: ResetTarget) -> list[ResetStep]:
    """Before and after for each partition. click.ClickException where there is nothing to reset, or a partition is not there."""
    committed = Groups(cluster).committed(group)
    wanted = _wanted(cluster, group, wish, committed)
    bounds = ends_of(cluster, wanted)
    for where in wanted:
        if where not in bounds:
            raise click.ClickException(f"partition {where} is not there, or has no leader; nothing was changed")
    match wish.to:
        case int(count):
            missing = [where for where in wanted if where not in committed]
            if missing:
                raise click.ClickException(f"group {group} has committed nothing in partition {missing[0]} that could be shifted")
            targets = {where: committed[where].offset + count for where in wanted}
        case Mapping():
            targets = dict(wish.to)
        case point:
            targets = {where: int(offset) for where, offset in find_offsets(cluster, point, wanted).items()}
    return [_step(where, committed.get(where), targets[where], *bounds[where]) for where in wanted]


def _wanted(cluster: "Cluster", group: str, wish: ResetTarget, committed: Mapping[TopicPartition, GroupOffset]) -> list[TopicPartition]:
    if isinstance(wish.to, Mapping):
        return sorted(wish.to)
    if not wish.topics:
        if not committed:
            raise click.ClickException(f"group {group} has committed nothing yet; name the topics with --topic")
        return sorted(committed)
    wanted = []
    for topic in dict.fromkeys(wish.topics):
        known = [each.partition for each in cluster.topic(topic).partitions]
        for partition in wish.partitions:
            if partition not in known:
                raise click.BadParameter(f"topic {topic} has partitions 0 to {len(known) - 1}, not {partition}", param_hint="--partition")
        wanted += [TopicPartition(topic, number) for number in known if not wish.partitions or number in wish.partitions]
    return sorted(wanted)


def _step(where: TopicPartition, before: GroupOffset | None, target: int, first: int, end: int) -> ResetStep:
    after = min(max(target, first), end)
    notice = "" if after == target else f"offset {target} is outside of the log, which has {first} to {end}"
    return ResetStep(where, None if before is None else before.offset, after, notice)


def execute_reset(cluster: "Cluster", group: str, plan: Sequence[ResetStep]) -> None:
    """Commit the new offsets, all or none; refused while the group has members."""
    members = members_of(cluster, group)
    if members:
        raise click.ClickException(f"{members}; stop them first. Nothing was changed")
    Groups(cluster).commit(group, {step.where: GroupOffset(Offset(step.after)) for step in plan})


def members_of(cluster: "Cluster", group: str) -> str | None:
    """The present members of the group, in words; None if it has none."""
    try:
        found = Groups(cluster).describe(group)
    except PeerError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
    if not found.has_members:
        return None
    clients = ", ".join(sorted({f"{member.client_id} at {member.host}" for member in found.members})) or "joining just now"
    return f"group {group} is {found.state} with members ({clients})"


def print_plan(group: str, plan: Sequence[ResetStep], *, executed: bool, as_json: bool, export: bool) -> None:
    """Before and after; notices and the last word go to standard error, so that what is piped on is whole."""
    for step in plan:
        if step.notice:
            say(f"partition {step.where}: {step.notice}; {step.after} is taken", err=True)
    if as_json:
        steps = [
            {"topic": s.where.topic, "partition": s.where.partition, "before": s.before, "after": s.after, "notice": s.notice or None}
            for s in plan
        ]
        print_json({"group": group, "executed": executed, "partitions": steps})
    elif export:
        for step in plan:
            click.echo(f"{step.where.topic},{step.where.partition},{step.after}")
    else:
        rows = [(s.where.topic, s.where.partition, "-" if s.before is None else s.before, s.after) for s in plan]
        print_table(("topic", "partition", "before", "after"), rows, numeric=("partition", "before", "after"), drop=())
    say(f"group {group} was reset" if executed else "nothing was changed; --execute does it", err=True)
