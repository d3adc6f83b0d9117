"""``moldau topic``: create, list, describe, alter, trim and delete topics."""

from typing import TYPE_CHECKING, Any

import click

from moldau.cli.offsets import POINT, POINT_FORMS, AtOffset, StartPoint, find_offsets
from moldau.cli.options import (
    PARTITIONS_MAX,
    REPLICAS_MAX,
    TEXT,
    TOPIC,
    bootstrap_option,
    config_option,
    json_option,
    open_cluster,
    refuse_unknown_settings,
    timeout_option,
)
from moldau.cli.output import counted, human_bytes, print_each, print_json, print_table
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster


@click.group("topic")
def topic() -> None:
    """Create, list, describe, alter, trim and delete topics."""


@topic.command("create")
@click.argument("name", type=TEXT)
@click.option("--partitions", type=click.IntRange(1, PARTITIONS_MAX), help="How many partitions.  [default: the broker's num.partitions]")
@click.option(
    "-r", "--replication-factor", type=click.IntRange(1, REPLICAS_MAX), help="How many brokers keep a copy.  [default: the broker's]"
)
@config_option("-c", "--config", "configs", help_="A setting of the topic, such as retention.ms=-1; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if there is such a topic already; it is left as it is.")
@bootstrap_option
@timeout_option(10.0)
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: dict[str, str],
    if_not_exists: bool,
    bootstrap: str,
    timeout: float,
) -> None:
    """Create the topic NAME."""
    from moldau.client.admin import BROKER_DEFAULT, Admin

    with open_cluster(bootstrap, timeout) as cluster:
        try:
            made = Admin(cluster).create_topic(name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, configs)
        except PeerError as error:
            if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            click.echo(f"topic {name} exists already")
            return
    size = f" with {counted(made.partitions, 'partition')}" if made.partitions > 0 else ""
    click.echo(f"created topic {name}{size}")


@topic.command("list")
@click.option(
    "--internal", is_flag=True, help="List topics too whose names begin with an underscore: those of brokers, registries and audits."
)
@json_option
@bootstrap_option
@timeout_option(10.0)
def list_(internal: bool, as_json: bool, bootstrap: str, timeout: float) -> None:
    """List all topics."""
    with open_cluster(bootstrap, timeout) as cluster:
        topics = cluster.topics(internal=internal)
    replicas = {found.name: max((len(p.replicas) for p in found.partitions), default=0) for found in topics}
    if as_json:
        print_json(
            [
                {
                    "name": found.name,
                    "id": found.id.hex(),
                    "partitions": len(found.partitions),
                    "replication_factor": replicas[found.name],
                    "internal": found.internal,
                }
                for found in topics
            ]
        )
        return
    rows = [(found.name, len(found.partitions), replicas[found.name]) for found in topics]
    print_table(("topic", "partitions", "replicas"), rows, numeric=("partitions", "replicas"), drop=("replicas",))


@topic.command("describe", short_help="Show partitions, offsets, sizes and settings of topics.")
@click.argument("names", metavar="NAME...", type=TOPIC, nargs=-1, required=True)
@json_option
@bootstrap_option
@timeout_option(10.0)
def describe(names: tuple[str, ...], as_json: bool, bootstrap: str, timeout: float) -> None:
    """Show the partitions of topics, with leader, in-sync replicas, offsets and size, and the settings that are not defaults."""
    from moldau.cli.existing_names import suggesting

    with open_cluster(bootstrap, timeout) as cluster:
        print_each(names, suggesting(cluster)(lambda name: _describe(cluster, name)), _print_description, as_json=as_json)


@topic.command("alter")
@click.argument("name", type=TOPIC)
@click.option("--partitions", type=click.IntRange(1, PARTITIONS_MAX), help="Raise the number of partitions to this.")
@config_option("-c", "--config", "configs", help_="A setting to change; may be repeated.")
@click.option(
    "--delete-config", "deleted", metavar="NAME", type=TEXT, multiple=True, help="A setting to put back to its default; may be repeated."
)
@bootstrap_option
@timeout_option(10.0)
def alter(name: str, partitions: int | None, configs: dict[str, str], deleted: tuple[str, ...], bootstrap: str, timeout: float) -> None:
    """Change settings of the topic NAME, or add partitions."""
    from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate

    if partitions is None and not configs and not deleted:
        raise click.UsageError("nothing to change: give --partitions, --config or --delete-config")
    with open_cluster(bootstrap, timeout) as cluster:
        cluster.topic(name)
        admin, resource, changes = Admin(cluster), AdminResource(AdminResourceType.TOPIC, name), ConfigUpdate(configs, deleted)
        refuse_unknown_settings(admin, resource, deleted)
        if configs or deleted:
            admin.alter_configs(resource, changes)
        if partitions is not None:
            admin.create_partitions(name, partitions)
    click.echo(f"altered topic {name}")


@topic.command("trim")
@click.argument("name", type=TOPIC)
@click.option("--before", required=True, metavar="POINT", type=POINT, help=f"{POINT_FORMS}.")
@click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this partition; may be repeated.")
@bootstrap_option
@timeout_option(10.0)
def trim(name: str, before: StartPoint, partitions: tuple[int, ...], bootstrap: str, timeout: float) -> None:
    """Delete the records of the topic NAME before POINT."""
    from moldau.client.admin import Admin

    with open_cluster(bootstrap, timeout) as cluster:
        known = [TopicPartition(name, found.partition) for found in cluster.topic(name).partitions]
        wanted = [where for where in known if not partitions or where.partition in partitions]
        _check_partitions(name, partitions, len(known))
        offsets = {where: int(offset) for where, offset in find_offsets(cluster, before, wanted).items()}
        if isinstance(before, AtOffset):
            _check_ends(cluster, offsets)
        first = Admin(cluster).delete_records(offsets)
    for where, offset in sorted(first.items()):
        click.echo(f"partition {where} begins at offset {offset}")


@topic.command("delete")
@click.argument("names", metavar="NAME...", type=TOPIC, nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Succeed if there is no such topic.")
@click.option("--internal", is_flag=True, help="Delete the brokers' own topics too, and with them all groups or transactional ids.")
@bootstrap_option
@timeout_option(10.0)
def delete(names: tuple[str, ...], if_exists: bool, internal: bool, bootstrap: str, timeout: float) -> None:
    """Delete topics and all their records. There is no way back."""
    from moldau.client.admin import Admin

    with open_cluster(bootstrap, timeout) as cluster:
        if not internal:
            _refuse_internal(cluster, names)
        admin = Admin(cluster)
        for name in dict.fromkeys(names):
            try:
                admin.delete_topic(name)
            except PeerError as error:
                if not (if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise
                click.echo(f"there is no topic {name}")
            else:
                click.echo(f"deleted topic {name}")


def _refuse_internal(cluster: "Cluster", names: tuple[str, ...]) -> None:
    """Brokers delete the topics that keep their groups and transactions like any other; --internal confirms it."""
    found = cluster.metadata(names).topics
    for name in names:
        if name in found and found[name].internal:
            raise click.ClickException(
                f"topic {name} holds the brokers' own state; --internal deletes it all the same. Nothing was deleted"
            )


def _describe(cluster: "Cluster", name: str) -> dict[str, Any]:
    """Everything about one topic, as JSON shows it. Offsets and sizes are null where a partition has no leader to ask."""
    from moldau.client.admin import Admin, AdminResource, AdminResourceType
    from moldau.client.partition_requests import EARLIEST, LATEST
    from moldau.model.config.definition import ConfigSource

    found, admin = cluster.topic(name), Admin(cluster)
    led = [TopicPartition(name, partition.partition) for partition in found.partitions if partition.leader >= 0]
    start, end = (cluster.list_offsets(dict.fromkeys(led, which)) for which in (EARLIEST, LATEST))
    sizes = admin.partition_sizes([name])
    configs = admin.describe_configs(AdminResource(AdminResourceType.TOPIC, name))
    partitions = []
    for partition in found.partitions:
        where = TopicPartition(name, partition.partition)
        partitions.append(
            {
                "partition": partition.partition,
                "leader": partition.leader if partition.leader >= 0 else None,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "start_offset": start[where].offset if where in start else None,
                "end_offset": end[where].offset if where in end else None,
                "bytes": sizes.get(where),
            }
        )
    return {
        "name": name,
        "id": found.id.hex(),
        "internal": found.internal,
        "partitions": partitions,
        "configs": {entry.name: entry.value for entry in configs if entry.source not in (ConfigSource.DEFAULT, None)},
    }


def _print_description(found: dict[str, Any]) -> None:
    partitions = found["partitions"]
    known = [p["end_offset"] - p["start_offset"] for p in partitions if p["end_offset"] is not None]
    size = human_bytes(sum(p["bytes"] or 0 for p in partitions))
    click.echo(f"topic {found['name']}: {counted(sum(known), 'offset')} in {counted(len(partitions), 'partition')}, {size}")
    settings = " ".join(f"{name}={value}" for name, value in found["configs"].items())
    click.echo(f"id: {found['id']}")
    click.echo(f"settings: {settings or 'all defaults'}")
    rows = [
        (
            p["partition"],
            "none" if p["leader"] is None else p["leader"],
            ",".join(map(str, p["replicas"])),
            ",".join(map(str, p["isr"])),
            "-" if p["start_offset"] is None else p["start_offset"],
            "-" if p["end_offset"] is None else p["end_offset"],
            human_bytes(p["bytes"]),
        )
        for p in partitions
    ]
    columns = ("partition", "leader", "replicas", "isr", "start", "end", "size")
    print_table(columns, rows, numeric=("partition", "leader", "start", "end", "size"), drop=("size", "replicas"))


def _check_partitions(name: str, wanted: tuple[int, ...], count: int) -> None:
    for partition in wanted:
        if partition >= count:
            raise click.BadParameter(f"topic {name} has partitions 0 to {count - 1}, not {partition}", param_hint="--partition")


def _check_ends(cluster: "Cluster", before: dict[TopicPartition, int]) -> None:
    """RequestFailedError for the first partition whose log ends before its offset. Leaders would trim the others all the same."""
    from moldau.client.errors import RequestFailedError
    from moldau.client.partition_requests import EARLIEST, LATEST

    start, end = (cluster.list_offsets(dict.fromkeys(before, which)) for which in (EARLIEST, LATEST))
    for where, offset in sorted(before.items()):
        if offset > end[where].offset:
            log = f"the log, which begins at offset {start[where].offset} and ends at offset {end[where].offset}"
            message = f"partition {where}: offset {offset} is after the end of {log}; nothing was trimmed"
            raise RequestFailedError(ErrorCode.OFFSET_OUT_OF_RANGE, message, where)
