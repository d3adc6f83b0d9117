"""What a mirror cannot mirror is named, that part stops, the rest continues, and nothing is lost once the cause is removed (mission F3)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.cli.exit_codes import DONE, FAILED, PARTITION_HALTED, WRONG_USE
from moldau.client.cluster import Cluster as ClusterClient
from moldau.mirror.plan.file import parse_plan
from moldau.model.errors import ErrorCode
from moldau.model.identity import BrokerId
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import HEADER_SIZE, stamp_crc
from moldau.protocol.versions import VersionRange
from support.answering_proxy import Edit
from support.mirror_operated import OperatedMirror, eventually
from support.mirror_world import mirror_text
from support.scripted_broker import Request

pytestmark = pytest.mark.system

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def of_mirror(key: ApiKey, answer: Callable[[Request], object]) -> Callable[[Request], object]:
    """A script for the requests of one kind that the mirror sends."""
    return lambda request: answer(request) if request.api_key is key and (request.client_id or "").startswith("mirror-") else None


def halted(world: OperatedMirror, state: str, reason: str) -> None:
    """`orders` has this state, for this reason; clicks are mirrored meanwhile."""
    eventually(lambda: world.state("orders") == state, f"orders are {state}: {world.row('orders')}")
    assert reason in world.row("orders")["reason"], world.row("orders")
    assert world.run("status").code == PARTITION_HALTED
    assert world.clicks_go_through()


def continues(world: OperatedMirror, *values: str) -> None:
    """The cause is removed: everything is there, once."""
    assert world.run("resume", "--topic", "orders").code == DONE
    eventually(lambda: world.mirrored("orders") == [*values], "orders are mirrored")
    eventually(lambda: world.run("status").code == DONE, "all is well again")


def test_a_topic_that_the_source_denies_halts_until_rights_are_given(tmp_path: Path) -> None:
    def deny(topic_id: bytes) -> Edit:
        def edit(response: Any) -> None:
            for topic in response.responses:
                if topic.topic_id == topic_id:
                    for each in topic.partitions:
                        each.error_code, each.records = DENIED, None

        return edit

    with OperatedMirror(tmp_path, "copy") as world:
        world.produce("orders", "1", "2")
        world.mirror.start()
        eventually(lambda: world.mirrored("orders") == ["1", "2"], "orders are mirrored")
        with ClusterClient(world.source.bootstrap_servers) as source:
            (topic_id,) = [each.id for each in source.topics() if each.name == "orders"]
        world.at_source.script = of_mirror(ApiKey.FETCH, lambda _: deny(topic_id))
        world.produce("orders", "3")  # it may still come by the Fetch that the broker has, with which the way has nothing to do any more
        eventually(lambda: world.mirrored("orders")[-1] == "3" or world.state("orders") == "denied", "3 has come, or is denied")
        world.produce("orders", "4")
        halted(world, "denied", "topic_authorization_failed")
        world.at_source.script = lambda _: None
        continues(world, "1", "2", "3", "4")


def test_a_topic_that_the_target_refuses_to_create_or_to_write_halts_alone(tmp_path: Path) -> None:
    def refuse(request: Request) -> object:
        names = [each.name for each in request.message.topics]
        if "east.orders" not in names:
            return None
        error, reason = ErrorCode.INVALID_CONFIG, "no topics of this kind here"
        return CreateTopicsResponse(topics=[CreatableTopicResult(name, error_code=error, error_message=reason) for name in names])

    def refuse_records(request: Request) -> object:
        """The broker stores what is for other topics; what it stores of this one is never committed."""

        def edit(response: Any) -> None:
            for topic in response.responses:
                if topic.name == "east.orders":
                    topic.partition_responses = [PartitionProduceResponse(each.index, DENIED) for each in topic.partition_responses]

        return edit if any(each.name == "east.orders" for each in request.message.topic_data) else None

    with OperatedMirror(tmp_path, "merge") as world:
        world.produce("orders", "1", "2")
        # the target does not take a configuration
        world.at_target.script = of_mirror(ApiKey.CREATE_TOPICS, refuse)
        world.mirror.start()
        halted(world, "refused", "no topics of this kind here")
        # then it creates the topic, and takes no records of it
        world.at_target.script = of_mirror(ApiKey.PRODUCE, refuse_records)
        eventually(lambda: "authorization" in world.row("orders").get("reason", ""), "records are refused")
        halted(world, "refused", "authorization")
        world.at_target.script = lambda _: None
        continues(world, "1", "2")


def test_a_source_that_is_away_is_tried_without_end_and_the_status_says_so(tmp_path: Path) -> None:
    with OperatedMirror(tmp_path, "copy") as world:
        world.produce("orders", "1")
        world.mirror.start()
        eventually(lambda: world.mirrored("orders") == ["1"], "orders are mirrored")
        world.source.stop()
        eventually(lambda: {world.state("orders"), world.state("clicks")} == {"retrying"}, "both are tried again")
        assert world.at_source.address in world.row("orders")["reason"]
        assert (
            f"broker does not answer, trying again: mirror=mirror cluster=source broker={world.at_source.address}"
            in world.mirror.log.read_text()
        )

        def retries() -> float:
            (line,) = [each for each in world.metrics().splitlines() if each.startswith("moldau_mirror_retries_total")]
            return float(line.split()[-1])

        before = retries()
        eventually(lambda: retries() > before + 3, "it does not stop trying")
        world.source.start()
        world.produce("orders", "2")
        eventually(lambda: world.mirrored("orders") == ["1", "2"], "orders are mirrored again")
        eventually(lambda: {world.state("orders"), world.state("clicks")} == {"mirroring"}, "nothing is tried again")
        assert f"broker answers again: mirror=mirror cluster=source broker={world.at_source.address}" in world.mirror.log.read_text()


@pytest.mark.parametrize("mode", ["copy", "merge"])
def test_a_damaged_batch_halts_its_partition(tmp_path: Path, mode: str) -> None:
    with OperatedMirror(tmp_path, mode) as world:
        world.produce("orders", "1", "2", "3")
        world.source.stop()  # what it has in memory of the log goes
        (log,) = (world.source.directory / "orders-0").glob("*.log")
        whole = log.read_bytes()
        second = len(whole) // 3
        log.write_bytes(whole[: second + HEADER_SIZE + 4] + b"\xff" + whole[second + HEADER_SIZE + 5 :])
        world.source.start()
        world.mirror.start()
        halted(world, "poisoned", "offset 1" if mode == "merge" else "corrupt")
        assert world.mirrored("orders") == (["1"] if mode == "merge" else [])
        world.source.stop()
        log.write_bytes(whole)
        world.source.start()
        continues(world, "1", "2", "3")


def test_a_batch_that_cannot_be_decompressed_halts_its_partition(tmp_path: Path) -> None:
    builder = RecordBatchBuilder(base_offset=0, leader_epoch=0, compression=Compression.GZIP)
    builder.append(1_700_000_000_000, None, b"x", (), 0)
    batch = bytearray(builder.build())
    batch[HEADER_SIZE:] = bytes(len(batch) - HEADER_SIZE)
    stamp_crc(memoryview(batch))
    configs = {"orders": {"mirror.source": "elsewhere topic"}}
    with OperatedMirror(tmp_path, "merge", configs=configs, more='partitioning = "key"') as world:
        with ClusterClient(world.source.bootstrap_servers) as source:  # as a mirror, whose batches nothing but the checksum is looked at
            data = [TopicProduceData("orders", partition_data=[PartitionProduceData(0, bytes(batch))])]
            request = ProduceRequest(None, -1, 30_000, data, "m")
            leader = source.metadata(["orders"]).topics["orders"].partitions[0].leader
            answer = source.at_broker(BrokerId(leader), ApiKey.PRODUCE, request, version=VersionRange(9, 12))
            assert answer.responses[0].partition_responses[0].error_code == 0, answer
        world.mirror.start()
        halted(world, "poisoned", "the batch at offset 0 cannot be read")


def test_a_bad_pattern_changes_nothing(tmp_path: Path) -> None:
    with OperatedMirror(tmp_path, "merge") as world:
        refused = world.run("topics add", "we[b")
        assert refused.code == WRONG_USE
        assert "'we[b' is not a regular expression" in refused.err
        world.file.write_text(world.file.read_text().replace('"orders"', '"orders["'))
        for command, code in (("check", FAILED), ("run", WRONG_USE), ("status", WRONG_USE)):
            refused = world.run(command)
            assert refused.code == code, command
            assert "mirror.toml:6: [topics] include: 'orders[' is not a regular expression" in refused.out + refused.err, refused


def test_a_loop_is_an_error_of_check_and_halts_in_a_process_or_ends_it(tmp_path: Path) -> None:
    with OperatedMirror(tmp_path, "merge", naming="topic") as world:
        # orders of the source is a copy of one of the target, which a merge from it would give its own records again
        target_id = world.target_id()
        world.source.create_topic("copied", config={"mirror.source": f"{target_id} {bytes(16).hex()}"})
        assert world.run("topics add", "copied").code == DONE
        world.mirror.start()
        eventually(lambda: world.state("copied") == "loop", "the state has a name")
        assert (
            world.row("copied")["reason"]
            == f"topic copied of east is a copy of one of the target: mirror.source is '{target_id} {bytes(16).hex()}'"
        )
        assert world.run("status").code == PARTITION_HALTED
        assert world.clicks_go_through()
        assert world.mirror.stop() == DONE

        # a file whose source is its target
        text = mirror_text("merge", world.at_target.address, world.at_target.address, name="itself", naming="topic")
        assert parse_plan(text, "itself.toml")
        world.file.write_text(text)
        checked = world.run("check")
        assert (checked.code, "the same cluster" in checked.out) == (FAILED, True)
        world.mirror.start()
        assert world.mirror.wait() == WRONG_USE
        (error,) = [line for line in world.mirror.log.read_text().splitlines() if line.startswith("Error: ")]
        assert error == f"Error: Invalid value for FILE: {world.file}: source east and the target are the same cluster, {target_id}"
