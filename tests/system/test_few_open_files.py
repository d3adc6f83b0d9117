"""A server that may have 256 files open serves 300 partitions: one record is written to each and read back, flushed or not.

As many connections as it admits do not take the files away that the logs need.
"""

import os
import resource
from pathlib import Path

import pytest

from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from support.server import ServerProcess
from support.wire import Wire, batch

pytestmark = pytest.mark.system

OPEN_FILES = 256
PARTITIONS = 300


def value_of(partition: int) -> bytes:
    return b"value of partition %d." % partition


def read_back(wire: Wire) -> None:
    for partition in range(PARTITIONS):
        wanted = [FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)]
        request = FetchRequest(max_wait_ms=10_000, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic("many", partitions=wanted)])
        answer = wire.ask(request, 11).responses[0].partitions[0]
        assert (answer.error_code, answer.high_watermark) == (0, 2)
        assert bytes(answer.records).count(value_of(partition)) == 2


@pytest.mark.parametrize("flush_messages", [pytest.param("1", marks=pytest.mark.long), "9223372036854775807"])
def test_three_hundred_partitions_with_256_files(tmp_path: Path, flush_messages: str) -> None:
    server = ServerProcess(tmp_path / "data", settings={"log.flush.interval.messages": flush_messages}, open_files_max=OPEN_FILES)
    with server:
        assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (OPEN_FILES, OPEN_FILES)
        host, _, port = server.bootstrap.rpartition(":")
        wire = Wire((host, int(port)))
        crowd = [Wire((host, int(port))) for _ in range(OPEN_FILES)]
        assert [topic.error_code for topic in wire.ask(CreateTopicsRequest([CreatableTopic("many", PARTITIONS, 1)]), 5).topics] == [0]
        for partition in range(PARTITIONS):  # one request for each partition
            data = [PartitionProduceData(partition, batch(value_of(partition)))]
            answer = wire.ask(ProduceRequest(None, -1, 30_000, [TopicProduceData("many", partition_data=data)]), 8)
            assert [row.error_code for row in answer.responses[0].partition_responses] == [0]
        data = [PartitionProduceData(partition, batch(value_of(partition))) for partition in range(PARTITIONS)]  # one for all
        answer = wire.ask(ProduceRequest(None, -1, 30_000, [TopicProduceData("many", partition_data=data)]), 8)
        assert [row.error_code for row in answer.responses[0].partition_responses] == [0] * PARTITIONS
        read_back(wire)
        asked = [ListOffsetsPartition(partition_index=partition, timestamp=0) for partition in range(PARTITIONS)]
        found = wire.ask(ListOffsetsRequest(topics=[ListOffsetsTopic("many", partitions=asked)]), 5)  # a handler loaded late
        assert {(row.error_code, row.offset) for row in found.topics[0].partitions} == {(0, 0)}
        assert len(os.listdir(f"/proc/{server.pid}/fd")) < OPEN_FILES - 32
        for connected in [wire, *crowd]:
            connected.close()
        assert server.stop() == 0
    assert not [line for line in server.output if "ERROR" in line or "disk full" in line], server.output
    with server:
        wire = Wire((host, int(port)))
        read_back(wire)
        wire.close()
