"""A group as ``moldau group describe`` shows it: offsets and lag by partition, and who reads it."""

from typing import TYPE_CHECKING, Any

import click

from moldau.cli.output import counted, print_table, say
from moldau.client.errors import RequestFailedError
from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from moldau.client.cluster import Cluster
    from moldau.client.groups import GroupDescription, Groups

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID)


def describe_group(cluster: "Cluster", groups: "Groups", name: str) -> dict[str, Any]:
    """Everything about one group, as JSON shows it.

    What is not known is null: the offset of a partition without a commit, the end of a deleted one, and with either the lag. The lag of
    the group is that of the partitions where it is known, null where it is known of none.
    """
    found = groups.describe(name)
    committed = groups.committed(name)
    owners = {where: member for member in found.members for where in member.partitions or ()}
    wanted = sorted({*committed, *owners})
    ends = ends_of(cluster, wanted)
    partitions = []
    for where in wanted:
        offset, end = committed.get(where), ends.get(where)
        owner = owners.get(where)
        partitions.append(
            {
                "topic": where.topic,
                "partition": where.partition,
                "committed": offset and offset.offset,
                "end_offset": end and end[1],
                "lag": None if offset is None or end is None else max(0, end[1] - offset.offset),
                "metadata": offset and offset.metadata,
                "member_id": owner and owner.member_id,
                "client_id": owner and owner.client_id,
                "host": owner and owner.host,
            }
        )
    lags = [each["lag"] for each in partitions if each["lag"] is not None]
    return {
        "group": name,
        "state": found.state,
        "protocol_type": found.protocol_type,
        "protocol": found.protocol,
        "coordinator": found.coordinator,
        "lag": sum(lags) if lags else None,
        "partitions": partitions,
        "members": _members(found),
    }


def ends_of(cluster: "Cluster", partitions: "Iterable[TopicPartition]") -> dict[TopicPartition, tuple[int, int]]:
    """First offset and end of each partition that exists and has a leader."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for where in partitions:
        by_topic.setdefault(where.topic, []).append(where)
    known = cluster.metadata(by_topic).topics if by_topic else {}
    led = [
        TopicPartition(name, each.partition)
        for name, topic in known.items()
        for each in topic.partitions
        if each.leader >= 0 and TopicPartition(name, each.partition) in by_topic[name]
    ]
    try:
        first, end = (cluster.list_offsets(dict.fromkeys(led, which)) for which in (EARLIEST, LATEST))
    except RequestFailedError as error:
        if error.code not in _GONE:
            raise
        return {}  # deleted while we looked
    return {where: (first[where].offset, end[where].offset) for where in led}


def _members(found: "GroupDescription") -> list[dict[str, Any]]:
    return [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.host,
            "topics": list(member.topics),
            "partitions": member.partitions and [{"topic": where.topic, "partition": where.partition} for where in member.partitions],
        }
        for member in found.members
    ]


def print_group(found: dict[str, Any]) -> None:
    """For people: a line about the group, its partitions, its members."""
    protocol = f", {found['protocol']}" if found["protocol"] else ""
    members = counted(len(found["members"]), "member")
    say(f"group {found['group']}: {found['state']}, {members}{protocol}, coordinator {found['coordinator']}, lag {_lag(found)}")
    names = ("topic", "partition", "committed", "end", "lag", "client", "host")
    rows = [
        (*(_dash(each[name]) for name in ("topic", "partition", "committed", "end_offset", "lag", "client_id", "host")),)
        for each in found["partitions"]
    ]
    print_table(names, rows, numeric=("partition", "committed", "end", "lag"), drop=("host", "client"))
    if found["members"]:
        click.echo()
        of_members = ("member", "instance", "client", "host", "partitions")
        print_table(of_members, map(_member_row, found["members"]), drop=("instance", "host", "client"))


def _lag(found: dict[str, Any]) -> str:
    if found["lag"] is None:
        return "-"
    unknown = sum(each["lag"] is None for each in found["partitions"])
    return f"{found['lag']:,}" + (f" and unknown in {counted(unknown, 'partition')}" if unknown else "")


def _member_row(member: dict[str, Any]) -> tuple[object, ...]:
    partitions = member["partitions"]
    given = "?" if partitions is None else " ".join(f"{each['topic']}-{each['partition']}" for each in partitions) or "none"
    return (member["member_id"], _dash(member["instance_id"]), member["client_id"], member["host"], given)


def _dash(value: object) -> object:
    return "-" if value is None else value
