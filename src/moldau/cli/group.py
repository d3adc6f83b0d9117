"""``moldau group``: list, describe, reset and delete consumer groups. Raw requests, nothing to install beyond Moldau itself."""

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from moldau.cli.offsets import POINT, POINT_FORMS, StartPoint
from moldau.cli.options import GROUP, TOPIC, ExistingPath, bootstrap_option, json_option, open_cluster, timeout_option
from moldau.cli.output import print_each, print_json, print_table, say
from moldau.model.errors import ErrorCode, MoldauError, PeerError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from moldau.client.cluster import Cluster

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
_PARTITION = click.IntRange(0, 2**31 - 1)


@click.group("group")
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list")
@click.option("--state", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only these; may be repeated.")
@json_option
@bootstrap_option
@timeout_option(10.0)
def list_groups(states: tuple[str, ...], as_json: bool, bootstrap: str, timeout: float) -> None:
    """List the groups of all brokers."""
    from moldau.client.groups import Groups

    with open_cluster(bootstrap, timeout) as cluster:
        found = Groups(cluster).list_groups(states)
    if as_json:
        fields = ("group", "state", "type", "protocol_type", "coordinator")
        print_json([{name: getattr(each, name) for name in fields} for each in found])
        return
    rows = [(g.group, g.state, g.protocol_type or "-", g.coordinator) for g in found]
    print_table(("group", "state", "protocol", "coordinator"), rows, numeric=("coordinator",), drop=("protocol", "coordinator"))


@group.command("describe")
@click.argument("names", metavar="NAME...", type=GROUP, nargs=-1, required=True)
@json_option
@bootstrap_option
@timeout_option(10.0)
def describe(names: tuple[str, ...], as_json: bool, bootstrap: str, timeout: float) -> None:
    """Show members, committed offsets and lag of groups."""
    from moldau.cli.existing_names import suggesting
    from moldau.cli.group_view import describe_group, print_group
    from moldau.client.groups import Groups

    with open_cluster(bootstrap, timeout) as cluster:
        groups = Groups(cluster)
        print_each(names, suggesting(cluster)(lambda name: describe_group(cluster, groups, name)), print_group, as_json=as_json)


@group.command("reset")
@click.argument("name", type=GROUP)
@click.option(
    "--topic", "topics", type=TOPIC, multiple=True, help="Only this topic, whether or not the group has read it; may be repeated."
)
@click.option("--partition", "partitions", type=_PARTITION, multiple=True, help="Only this partition of the one --topic; may be repeated.")
@click.option(
    "--to",
    metavar="POINT",
    type=POINT,
    help=f"{POINT_FORMS}. A time is the first record that is not older, the end if there is none.",
)
@click.option("--shift-by", type=int, metavar="N", help="So many offsets on from what is committed, or back with -N.")
@click.option(
    "--from-file",
    type=ExistingPath(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Lines of topic,partition,offset, or of group,topic,partition,offset; as Kafka's tool writes and reads them.",
)
@click.option("--execute/--dry-run", default=False, help="Do it, or only show it.  [default: --dry-run]")
@click.option("--export", is_flag=True, help="Print lines for --from-file instead of a table.")
@json_option
@bootstrap_option
@timeout_option(10.0)
def reset(
    name: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    to: StartPoint | None,
    shift_by: int | None,
    from_file: str | None,
    execute: bool,
    export: bool,
    as_json: bool,
    bootstrap: str,
    timeout: float,
) -> None:
    """Set where the group NAME reads next.

    For all partitions that it has read, or those of --topic and --partition. Shows before and after, and changes nothing without --execute.
    Offsets beyond the log are moved to its ends, with a notice. A group with members is not touched: stop them first. A group that does
    not exist is made.

    \b
    moldau group reset billing --to earliest --topic orders --partition 2
    moldau group reset billing --shift-by -100 --execute
    """
    from moldau.cli.group_reset import check_wishes, execute_reset, members_of, plan_reset, print_plan

    if export and as_json:
        raise click.UsageError("give one of --export and --json")
    wish = check_wishes(name, topics, partitions, to=to, shift_by=shift_by, from_file=from_file)
    with open_cluster(bootstrap, timeout) as cluster:
        plan = plan_reset(cluster, name, wish)
        if execute:
            execute_reset(cluster, name, plan)
        elif members := members_of(cluster, name):
            say(f"{members}: while they run it cannot be reset", err=True)
    print_plan(name, plan, executed=execute, as_json=as_json, export=export)


@group.command("delete")
@click.argument("names", metavar="NAME...", type=GROUP, nargs=-1, required=True)
@click.option("--topic", "topics", type=TOPIC, multiple=True, help="Only the group's offsets in this topic; may be repeated.")
@click.option("--partition", "partitions", type=_PARTITION, multiple=True, help="Only this partition of the one --topic; may be repeated.")
@click.option("--if-exists", is_flag=True, help="Succeed if there is no such group.")
@bootstrap_option
@timeout_option(10.0)
def delete(
    names: tuple[str, ...], topics: tuple[str, ...], partitions: tuple[int, ...], if_exists: bool, bootstrap: str, timeout: float
) -> None:
    """Delete groups and their offsets.

    Or, with --topic, their offsets there. A group with members cannot be deleted. There is no way back.
    """
    from moldau.cli.group_reset import check_one_topic
    from moldau.client.groups import Groups

    check_one_topic(topics, partitions)
    with open_cluster(bootstrap, timeout) as cluster:
        groups = Groups(cluster)
        for name in dict.fromkeys(names):
            with _missing_ok(name, allowed=if_exists), _naming_members(cluster, name):
                if not topics:
                    groups.delete(name)
                    say(f"deleted group {name}")
                    continue
                wanted = _committed_in(cluster, name, topics, partitions)
                groups.delete_offsets(name, wanted)
                for where in wanted:
                    say(f"deleted the offset of group {name} in partition {where}")


def _committed_in(cluster: "Cluster", name: str, topics: "Sequence[str]", partitions: "Sequence[int]") -> list[TopicPartition]:
    """Partitions of these topics that the group has an offset in; the topics themselves may be deleted."""
    from moldau.client.groups import Groups

    groups = Groups(cluster)
    groups.describe(name)
    there = [where for where in groups.committed(name) if where.topic in topics and (not partitions or where.partition in partitions)]
    if not there:
        raise click.ClickException(f"group {name} has no offsets there; nothing was deleted")
    return sorted(there)


@contextmanager
def _naming_members(cluster: "Cluster", name: str) -> "Iterator[None]":
    """The error for a group that cannot be deleted since it has members names them."""
    from moldau.cli.group_reset import members_of
    from moldau.client.errors import RequestFailedError

    try:
        yield
    except RequestFailedError as error:
        members = None
        if error.code in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
            with suppress(MoldauError):
                members = members_of(cluster, name)
        if members is None:
            raise
        what = members if error.code is ErrorCode.NON_EMPTY_GROUP else f"{error.message.rstrip('.')}: {members}"
        raise RequestFailedError(error.code, f"{what}; stop them first", error.subject) from error


@contextmanager
def _missing_ok(name: str, *, allowed: bool) -> "Iterator[None]":
    try:
        yield
    except PeerError as error:
        if not (allowed and error.code is ErrorCode.GROUP_ID_NOT_FOUND):
            raise
        say(f"there is no group {name}")
