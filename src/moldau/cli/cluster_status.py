"""``moldau cluster status``: the processes of a cluster on this host, and how its partitions stand."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from moldau.adapters.process_identity import ProcessState
from moldau.assembly.local_cluster.state import ClusterState, existing_state
from moldau.cli.exit_codes import FAILED
from moldau.cli.output import counted, print_json, print_table, say
from moldau.client.admin import AdminResourceType
from moldau.client.cluster import Cluster
from moldau.model.errors import MoldauError
from moldau.model.min_insync import effective_minimum
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.cluster import DescribeTopicPartitionsRequest
from moldau.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

ASK_S = 5.0
NONE = -1
MINIMUM = "min.insync.replicas"


@click.command("status")
@click.option("--data", "directory", metavar="DIR", default="moldau-cluster", show_default=True, help="Directory of the cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(directory: str, as_json: bool) -> None:
    """Show the brokers' processes (up, paused or dead), the controller, and partitions that lack replicas.

    With --json every partition: leader, replicas, those in sync (isr), and those that may lead though they are not (elr). What the brokers
    know is left out, as null, where none of them answers.

    Exit code 1 where no broker answers, and while partitions are offline: they have no leader.
    """
    state = existing_state(directory)
    document = {**_processes(state), **_partitions(state)}
    if as_json:
        print_json(document)
    else:
        _print(document)
    if document["partitions"] is None or document["offline"]:
        click.get_current_context().exit(FAILED)


def _processes(state: ClusterState) -> dict[str, Any]:
    brokers = [{"id": each.broker_id, "address": each.address, "pid": each.pid, "state": str(each.state)} for each in state.brokers]
    return {"brokers": brokers}


def _partitions(state: ClusterState) -> dict[str, Any]:
    """What a broker knows: the controller if it is up."""
    live = ",".join(each.address for each in state.brokers if each.state is ProcessState.UP)
    unknown = dict.fromkeys(("controller", "partitions", "under_replicated", "under_min_isr", "offline"))
    if not live:
        return unknown
    with Cluster(live, timeout_s=ASK_S) as cluster:
        try:
            controller = cluster.metadata([]).controller
            partitions = list(_described(cluster))
            lacking = [each for each in partitions if len(each["isr"]) < len(each["replicas"])]
            minimums = _minimums(cluster, dict.fromkeys(each["topic"] for each in lacking))
        except MoldauError:
            return unknown
    return {
        "controller": None if controller == NONE else controller,
        "partitions": partitions,
        "under_replicated": [_name(each) for each in lacking],
        "under_min_isr": [
            _name(each) for each in lacking if len(each["isr"]) < effective_minimum(minimums.get(each["topic"], 1), each["replicas"])
        ],
        "offline": [_name(each) for each in partitions if each["leader"] is None],
    }


def _described(cluster: Cluster) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        page = cluster.anywhere(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest([], cursor=cursor))
        for topic in page.topics:
            for each in topic.partitions:
                yield {
                    "topic": topic.name,
                    "partition": each.partition_index,
                    "leader": None if each.leader_id == NONE else each.leader_id,
                    "replicas": each.replica_nodes,
                    "isr": each.isr_nodes,
                    "elr": each.eligible_leader_replicas or [],
                }
        cursor = page.next_cursor
        if cursor is None:
            return


def _minimums(cluster: Cluster, topics: Iterable[str]) -> dict[str, int]:
    """The least number of replicas in sync with which topics take records for acks=all; one that is deleted meanwhile is left out."""
    wanted = [DescribeConfigsResource(AdminResourceType.TOPIC, topic, [MINIMUM]) for topic in topics]
    if not wanted:
        return {}
    response = cluster.anywhere(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(wanted, False, False))
    return {each.resource_name: int(found.value) for each in response.results for found in each.configs}


def _print(document: dict[str, Any]) -> None:
    partitions = document["partitions"]
    columns = ["broker", "address", "pid", "state"]
    if partitions is not None:
        columns += ["leads", "replicas", "in sync"]
    print_table(
        columns, [_row(each, partitions) for each in document["brokers"]], numeric=("broker", "pid", "leads", "replicas", "in sync")
    )
    if partitions is None:
        say("no broker answers")
        return
    controller = document["controller"]
    say(f"controller: {'none' if controller is None else controller}")
    lacking, below, offline = (document[name] for name in ("under_replicated", "under_min_isr", "offline"))
    say(f"{counted(len(partitions), 'partition')}, {len(lacking)} under-replicated, {len(below)} under {MINIMUM}, {len(offline)} offline")
    rows = [
        (_name(each), _shown(each["leader"]), _joined(each["replicas"]), _joined(each["isr"]), _joined(each["elr"]))
        for each in partitions
        if _name(each) in lacking or _name(each) in offline
    ]
    if rows:
        print_table(("partition", "leader", "replicas", "isr", "elr"), rows)


def _row(broker: dict[str, Any], partitions: Sequence[dict[str, Any]] | None) -> list[str]:
    cells = [str(broker["id"]), broker["address"], _shown(broker["pid"]), broker["state"]]
    if partitions is not None:
        number = broker["id"]
        cells.append(str(sum(each["leader"] == number for each in partitions)))
        cells += [str(sum(number in each[name] for each in partitions)) for name in ("replicas", "isr")]
    return cells


def _name(partition: dict[str, Any]) -> str:
    return f"{partition['topic']}-{partition['partition']}"


def _shown(value: int | None) -> str:
    return "-" if value is None else str(value)


def _joined(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"
