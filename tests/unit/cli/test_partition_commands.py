"""`moldau partition` and `moldau broker` against a cluster of three that does what it is asked: what they ask, print, and end with."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from moldau.cli.application import application
from moldau.cli.partition_moves import MoveProgress
from moldau.cli.reassignment_file import parse
from moldau.client.admin import AdminResourceType
from moldau.client.cluster import Cluster
from moldau.model.config.definition import ConfigSource
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import configs, metadata
from moldau.protocol.messages import partition_reassignments as messages
from support.scripted_broker import Request, ScriptedBroker

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
NO_LEADER = -1


class ClusterStandIn:
    """Brokers that are `live`, of which one answers for all. A reassignment is under way until `complete`; one of the order completes."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        broker.script = self.answer
        self.live: dict[int, str | None] = dict.fromkeys((1, 2, 3))
        self.replicas = {T0: [1, 2], T1: [2, 1], T2: [1, 2]}
        self.leaders = {T0: 1, T1: 2, T2: 1}
        self.out_of_sync: dict[TopicPartition, list[int]] = {}
        self.targets: dict[TopicPartition, list[int]] = {}
        self.refused: dict[TopicPartition, ErrorCode] = {}
        self.completes_at_once = True
        self.settings: dict[str, dict[str, str]] = {}
        """Of topics and brokers, by name."""

    def complete(self, *partitions: TopicPartition) -> None:
        """Those named, or all that is under way."""
        for where in partitions or list(self.targets):
            target = self.replicas[where] = self.targets.pop(where)
            if self.leaders[where] not in target:
                self.leaders[where] = target[0]

    def asked(self, key: ApiKey) -> list[Any]:
        return [request.message for request in self.broker.requests if request.api_key is key]

    def answer(self, request: Request) -> object:
        message = request.message
        match request.api_key:
            case ApiKey.METADATA:
                return self._metadata()
            case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
                responses = [
                    messages.ReassignableTopicResponse(
                        topic.name,
                        [
                            messages.ReassignablePartitionResponse(each.partition_index, self._alter(topic.name, each), "as the test wants")
                            for each in topic.partitions
                        ],
                    )
                    for topic in message.topics
                ]
                return messages.AlterPartitionReassignmentsResponse(responses=responses)
            case ApiKey.LIST_PARTITION_REASSIGNMENTS:
                return messages.ListPartitionReassignmentsResponse(
                    topics=[
                        messages.OngoingTopicReassignment(where.topic, [self._ongoing(where, target)])
                        for where, target in self.targets.items()
                    ]
                )
            case ApiKey.DESCRIBE_CONFIGS:
                return configs.DescribeConfigsResponse(results=[self._configs(each) for each in message.resources])
            case ApiKey.INCREMENTAL_ALTER_CONFIGS:
                return configs.IncrementalAlterConfigsResponse(responses=[self._alter_configs(each) for each in message.resources])
            case _:
                wanted = list(self.replicas)
                if message.topic_partitions is not None:
                    wanted = [TopicPartition(topic.topic, each) for topic in message.topic_partitions for each in topic.partitions]
                return messages.ElectLeadersResponse(
                    replica_election_results=[
                        messages.ReplicaElectionResult(
                            where.topic, [messages.PartitionResult(where.partition, self._elect(where, message.election_type), "why")]
                        )
                        for where in wanted
                    ]
                )

    def _configs(self, wanted: configs.DescribeConfigsResource) -> configs.DescribeConfigsResult:
        source = (ConfigSource.DYNAMIC_TOPIC if wanted.resource_type == AdminResourceType.TOPIC else ConfigSource.DYNAMIC_BROKER).value
        found = self.settings.get(wanted.resource_name, {})
        entries = [configs.DescribeConfigsResourceResult(name, value, config_source=source) for name, value in found.items()]
        return configs.DescribeConfigsResult(0, None, wanted.resource_type, wanted.resource_name, entries)

    def _alter_configs(self, wanted: configs.IncrementalAlterConfigsResource) -> configs.AlterConfigsResourceResponse:
        found = self.settings.setdefault(wanted.resource_name, {})
        for each in wanted.configs:
            if each.value is None:
                del found[each.name]
            else:
                found[each.name] = each.value
        return configs.AlterConfigsResourceResponse(0, None, wanted.resource_type, wanted.resource_name)

    def _metadata(self) -> metadata.MetadataResponse:
        partitions = [
            metadata.MetadataResponsePartition(
                partition_index=where.partition,
                leader_id=self.leaders[where],
                replica_nodes=replicas,
                isr_nodes=[each for each in replicas if each in self.live and each not in self.out_of_sync.get(where, [])],
            )
            for where, replicas in self.replicas.items()
        ]
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(number, "127.0.0.1", self.broker.port, rack) for number, rack in self.live.items()],
            cluster_id="scripted",
            controller_id=min(self.live),
            topics=[metadata.MetadataResponseTopic(name="t", topic_id=bytes(15) + b"t", partitions=partitions)],
        )

    def _alter(self, name: str, wanted: messages.ReassignablePartition) -> int:
        where = TopicPartition(name, wanted.partition_index)
        if where in self.refused:
            return self.refused[where]
        if wanted.replicas is None:
            del self.targets[where]
        else:
            self.targets[where] = wanted.replicas
            if self.completes_at_once or sorted(wanted.replicas) == sorted(self.replicas[where]):
                self.complete(where)
        return ErrorCode.NONE

    def _ongoing(self, where: TopicPartition, target: list[int]) -> messages.OngoingPartitionReassignment:
        now = self.replicas[where]
        adding, removing = [each for each in target if each not in now], [each for each in now if each not in target]
        return messages.OngoingPartitionReassignment(where.partition, [*target, *removing], adding, removing)

    def _elect(self, where: TopicPartition, kind: int) -> int:
        if where in self.refused:
            return self.refused[where]
        preferred = self.replicas[where][0]
        if self.leaders[where] == preferred or (kind and self.leaders[where] != NO_LEADER):
            return ErrorCode.ELECTION_NOT_NEEDED
        self.leaders[where] = preferred
        return ErrorCode.NONE


@pytest.fixture
def stand_in() -> Iterator[ClusterStandIn]:
    with ScriptedBroker() as broker:
        yield ClusterStandIn(broker)


def run(stand_in: ClusterStandIn, *arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(application, [*arguments, "--bootstrap", stand_in.broker.bootstrap], input=given)


def wanted(targets: Mapping[TopicPartition, list[int]]) -> str:
    partitions = [{"topic": where.topic, "partition": where.partition, "replicas": replicas} for where, replicas in targets.items()]
    return json.dumps({"version": 1, "partitions": partitions})


# Reassign


def test_a_file_of_kafkas_format_is_carried_out_and_verified(stand_in: ClusterStandIn, tmp_path: Path) -> None:
    file = tmp_path / "moves.json"
    file.write_text(wanted({T0: [2, 3], T1: [2, 1]}))
    stand_in.completes_at_once = False
    begun = run(stand_in, "partition", "reassign", str(file))
    assert (begun.exit_code, begun.stderr) == (0, "1 reassignment begun\n")
    assert "1 partition to change: 1 replica to copy, 1 preferred leader to move" in begun.stdout
    assert stand_in.targets == {T0: [2, 3]}, "what has its replicas already is not asked for"
    pending = run(stand_in, "partition", "reassign", str(file), "--verify")
    assert pending.exit_code == 1
    assert "t-0        2,3       under way" in pending.stdout
    assert pending.stderr == "Error: 1 reassignment not completed\n"
    stand_in.complete()
    assert run(stand_in, "partition", "reassign", str(file), "--verify").stdout == "2 of 2 reassignments completed\n"
    stand_in.replicas[T0] = [1, 3]
    assert "other replicas" in run(stand_in, "partition", "reassign", str(file), "--verify").stdout


def test_what_is_computed_for_a_topic_can_be_shown_kept_in_a_file_and_done(stand_in: ClusterStandIn) -> None:
    plan = run(stand_in, "partition", "reassign", "--topic", "t", "--brokers", "2,3", "--dry-run", "--json").stdout
    assert not stand_in.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    entries = json.loads(plan)["partitions"]
    assert all(sorted(each["replicas"]) == [2, 3] for each in entries)
    assert [each["before"] for each in entries] == [[1, 2], [2, 1], [1, 2]]
    done = run(stand_in, "partition", "reassign", "-", "--wait", "5", given=plan)
    assert (done.exit_code, done.stderr) == (0, "3 reassignments completed\n")
    assert all(sorted(each) == [2, 3] for each in stand_in.replicas.values())
    again = run(stand_in, "partition", "reassign", "--topic", "t", "--brokers", "2,3")
    assert (again.exit_code, again.stdout) == (0, "0 partitions to change: 0 replicas to copy, 0 preferred leaders to move\n")


def test_what_is_under_way_is_listed_waited_for_and_cancelled(stand_in: ClusterStandIn) -> None:
    assert run(stand_in, "partition", "reassign", "--list").stdout == "no reassignment is under way\n"
    stand_in.completes_at_once = False
    waited = run(stand_in, "partition", "reassign", "-", "--wait", "0.1", given=wanted({T0: [2, 3]}))
    assert (waited.exit_code, waited.stderr) == (1, "Error: partition t-0 still moves\n")
    listed = run(stand_in, "partition", "reassign", "--list", "--json")
    assert json.loads(listed.stdout) == [{"topic": "t", "partition": 0, "replicas": [2, 3, 1], "adding": [3], "removing": [1]}]
    assert "t-0        2,3,1     3       1" in run(stand_in, "partition", "reassign", "--list").stdout
    assert run(stand_in, "partition", "reassign", "--cancel", "--topic", "t").stdout == "1 reassignment cancelled\n"
    assert not stand_in.targets
    assert run(stand_in, "partition", "reassign", "--cancel").stdout == "no reassignment is under way\n"


def test_a_refusal_names_the_partition_and_the_others_are_done(stand_in: ClusterStandIn) -> None:
    stand_in.refused[T0] = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    done = run(stand_in, "partition", "reassign", "-", "--wait", "5", given=wanted({T0: [2, 3], T1: [3, 1]}))
    assert done.exit_code == 1
    assert done.stderr == ("Error: INVALID_REPLICA_ASSIGNMENT: partition t-0: as the test wants\nError: partition t-0 was not changed\n")
    assert stand_in.replicas[T1] == [3, 1]
    alone = run(stand_in, "partition", "reassign", "-", given=wanted({T0: [2, 3]}))
    assert (alone.exit_code, alone.stderr) == (1, "Error: INVALID_REPLICA_ASSIGNMENT: partition t-0: as the test wants\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (wanted({T0: [2, 9]}), "-: partition t-0: broker 9 is not live (live are 1, 2, 3); nothing was changed"),
        (wanted({T0: [8, 9]}), "-: partition t-0: brokers 8, 9 are not live (live are 1, 2, 3); nothing was changed"),
        (wanted({TopicPartition("t", 7): [1]}), "-: partition t-7 does not exist; nothing was changed"),
        (wanted({TopicPartition("u", 0): [1]}), "-: partition u-0 does not exist; nothing was changed"),
    ],
)
def test_nothing_is_begun_when_one_of_the_moves_cannot_be(stand_in: ClusterStandIn, given: str, message: str) -> None:
    document = json.loads(given)
    document["partitions"].insert(0, {"topic": "t", "partition": 1, "replicas": [1, 3]})
    done = run(stand_in, "partition", "reassign", "-", given=json.dumps(document))
    assert (done.exit_code, done.stderr) == (1, f"Error: {message}\n")
    assert not stand_in.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "f: not JSON"),
        ("[" * 100_000, "f: not JSON"),
        ("[]", "f: not a reassignment"),
        ('{"partitions": 1}', "f: not a reassignment"),
        ('{"version": 2, "partitions": []}', "f: version 2 of the format is not known, only 1"),
        ('{"partitions": []}', "f: it names no partition"),
        ('{"partitions": [{"topic": "t"}]}', r"f: partitions\[0\]: needs a topic, a partition and replicas"),
        ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', r"f: partitions\[0\]: needs"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "the replicas of t-0 are not a list of brokers' numbers"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "the replicas of t-0 are not"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', r"name a broker twice: \[1, 1\]"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "f: partition t-0 comes twice",
        ),
    ],
)
def test_a_file_that_is_not_a_reassignment_is_an_error_that_says_why(text: str, message: str) -> None:
    from click import ClickException

    with pytest.raises(ClickException, match=message):
        parse(text, "f")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-", "--topic", "t"],
        ["--topic", "t", "--list", "--verify"],
        ["--topic", "t", "--dry-run", "--wait", "3"],
        ["-", "--brokers", "1"],
        ["--topic", "t", "--verify", "--brokers", "1"],
        ["--topic", "t", "--brokers", "1,1"],
        ["--topic", "t", "--brokers", "1,x"],
    ],
)
def test_options_that_do_not_go_together(stand_in: ClusterStandIn, arguments: list[str]) -> None:
    assert run(stand_in, "partition", "reassign", *arguments).exit_code == 2
    assert not stand_in.broker.requests


def test_a_throttle_is_set_for_the_replicas_that_move_and_removed_when_they_have_moved(stand_in: ClusterStandIn) -> None:
    stand_in.completes_at_once = False
    run(stand_in, "partition", "reassign", "-", "--throttle", "5000", given=wanted({T0: [2, 3], T1: [1, 2]}))
    rates = {f"{side}.replication.throttled.rate": "5000" for side in ("leader", "follower")}
    assert stand_in.settings == {
        "t": {"leader.replication.throttled.replicas": "0:1,0:2", "follower.replication.throttled.replicas": "0:3"},
        **{str(broker): rates for broker in (1, 2, 3)},
    }
    assert run(stand_in, "partition", "reassign", "--topic", "t", "--verify").exit_code == 1
    assert all(stand_in.settings.values()), "they still move"
    stand_in.complete()
    verified = run(stand_in, "partition", "reassign", "--topic", "t", "--verify")
    assert (verified.exit_code, verified.stderr) == (0, "throttle removed\n")
    assert not any(stand_in.settings.values())


def test_who_waits_for_the_moves_need_not_remove_the_throttle(stand_in: ClusterStandIn) -> None:
    done = run(stand_in, "broker", "drain", "1", "--replicas", "--throttle", "5000")
    assert (done.exit_code, done.stderr) == (0, "throttle removed\nbroker 1 has no replicas\n")
    assert not any(stand_in.settings.values())


# Elect


def test_preferred_leaders_are_elected_where_others_lead(stand_in: ClusterStandIn) -> None:
    stand_in.leaders[T1] = 1
    done = run(stand_in, "partition", "elect", "preferred", "--topic", "t")
    assert (done.exit_code, done.stdout) == (0, "elected 1 leader; 2 partitions needed no election\n")
    assert stand_in.leaders[T1] == 2


def test_an_unclean_election_of_one_partition(stand_in: ClusterStandIn) -> None:
    stand_in.leaders[T2] = NO_LEADER
    done = run(stand_in, "partition", "elect", "unclean", "--topic", "t", "--partition", "2", "--json")
    assert json.loads(done.stdout) == [{"topic": "t", "partition": 2, "leader": 1, "elected": True, "error": None}]
    (request,) = stand_in.asked(ApiKey.ELECT_LEADERS)
    assert (request.election_type, request.topic_partitions[0].partitions) == (1, [2])


def test_an_election_that_fails_is_an_error(stand_in: ClusterStandIn) -> None:
    stand_in.refused[T1] = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    done = run(stand_in, "partition", "elect", "preferred", "--all")
    assert (done.exit_code, done.stderr) == (1, "Error: PREFERRED_LEADER_NOT_AVAILABLE: partition t-1: why\n")
    assert run(stand_in, "partition", "elect", "preferred").exit_code == 2
    assert run(stand_in, "partition", "elect", "preferred", "--all", "--topic", "t").exit_code == 2
    missing = run(stand_in, "partition", "elect", "preferred", "--topic", "t", "--partition", "5")
    assert missing.exit_code == 2
    assert "topic t has partitions 0 to 2, not 5" in missing.stderr


# Drain, balance


def test_a_drained_broker_leads_nothing_and_stays_a_follower(stand_in: ClusterStandIn) -> None:
    done = run(stand_in, "broker", "drain", "1")
    assert (done.exit_code, done.stderr) == (0, "broker 1 leads no partition\n")
    assert stand_in.leaders == {T0: 2, T1: 2, T2: 2}
    assert stand_in.replicas == {T0: [2, 1], T1: [2, 1], T2: [2, 1]}
    assert run(stand_in, "broker", "drain", "1").stdout.startswith("0 partitions to change"), "it can be repeated"


def test_a_drain_of_replicas_leaves_nothing_also_of_a_dead_broker(stand_in: ClusterStandIn) -> None:
    del stand_in.live[1]
    stand_in.leaders = dict.fromkeys(stand_in.leaders, 2)
    done = run(stand_in, "broker", "drain", "1", "--replicas")
    assert (done.exit_code, done.stderr) == (0, "broker 1 has no replicas\n")
    assert all(sorted(each) == [2, 3] for each in stand_in.replicas.values())


def test_what_no_other_broker_can_lead_is_named_and_the_rest_is_drained(stand_in: ClusterStandIn) -> None:
    stand_in.replicas[T2] = [1]
    stand_in.out_of_sync[T0] = [2]
    done = run(stand_in, "broker", "drain", "1")
    assert done.exit_code == 1
    assert done.stderr == (
        "broker 1 still leads t-0: no other replica is in sync\n"
        "Error: broker 1 still leads t-2: it has no other replica; --replicas moves it\n"
    )
    refused = run(stand_in, "broker", "drain", "9")
    assert (refused.exit_code, refused.stderr) == (1, "Error: there is no broker 9 (live are 1, 2, 3)\n")


def test_a_drain_with_no_broker_left_changes_nothing(stand_in: ClusterStandIn) -> None:
    stand_in.live = dict.fromkeys((1, 2))
    done = run(stand_in, "broker", "drain", "1", "--replicas")
    message = "partition t-0: more replicas than brokers that may have them (2)"
    assert (done.exit_code, done.stderr) == (1, f"Error: INVALID_REPLICATION_FACTOR: {message}\n")
    assert not stand_in.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)


def test_a_balance_gives_a_new_broker_its_part_and_moves_leaders_back(stand_in: ClusterStandIn) -> None:
    stand_in.leaders[T1] = 1
    shown = run(stand_in, "partition", "balance", "--dry-run")
    assert shown.exit_code == 0
    assert not stand_in.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    done = run(stand_in, "partition", "balance")
    assert (done.exit_code, done.stderr) == (0, "balanced\n")
    assert done.stdout == shown.stdout
    assert sorted(broker for replicas in stand_in.replicas.values() for broker in replicas) == [1, 1, 2, 2, 3, 3]
    assert sorted(stand_in.leaders.values()) == [1, 2, 3]


def test_a_balance_leaves_alone_what_is_being_reassigned(stand_in: ClusterStandIn) -> None:
    stand_in.completes_at_once = False
    stand_in.targets[T0] = [1, 3]
    run(stand_in, "partition", "balance", "--wait", "0.1")
    asked = [topic for message in stand_in.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS) for topic in message.topics]
    assert all(each.partition_index != 0 for topic in asked for each in topic.partitions)


# Progress


def test_progress_is_reported_at_intervals_and_the_time_is_bounded(stand_in: ClusterStandIn, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.targets = {T0: [2, 3], T1: [3, 2], T2: [1, 3]}
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > 3 and T0 in stand_in.targets:
            stand_in.replicas[T0] = stand_in.targets.pop(T0)

    with Cluster(stand_in.broker.bootstrap, timeout_s=5.0) as cluster:
        progress = MoveProgress(cluster, 10.0, sleep=sleep, monotonic=lambda: now)
        assert progress.wait_moved([T0, T1, T2]) == [T1, T2]
    assert 10.0 <= now < 10.5
    assert capsys.readouterr().err == "1 of 3 partitions moved\n"
