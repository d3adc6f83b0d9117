"""DescribeLogDirs: what lies in the log directories, and how full their disks are."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from moldau.broker.request import Reply, Request
from moldau.log.description import DirectoryDescription
from moldau.model.errors import ErrorCode
from moldau.model.steps import Pause, Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

Wanted = dict[str, set[int]] | None


def handle(broker: "Broker", request: DescribeLogDirsRequest, context: Request, reply: Reply) -> Steps:
    """Every log directory, with all partitions (null) or some; KAFKA_STORAGE_ERROR for one that is offline."""
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
    results = []
    for directory in broker.logs.describe():
        described = yield from _described(directory, wanted)
        results.append(described)
    reply(DescribeLogDirsResponse(results=results))


def _described(directory: DirectoryDescription, wanted: Wanted) -> Generator[Pause, None, DescribeLogDirsResult]:
    if directory.error is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in directory.partitions:
        yield None
        name, index = partition.topic_partition
        if wanted is None or index in wanted.get(name, ()):
            told = DescribeLogDirsPartition(index, partition.size_bytes, partition.offset_lag)
            topics.setdefault(name, DescribeLogDirsTopic(name)).partitions.append(told)
    return DescribeLogDirsResult(
        log_dir=directory.path, topics=list(topics.values()), total_bytes=directory.total_bytes, usable_bytes=directory.usable_bytes
    )


HANDLERS = {ApiKey.DESCRIBE_LOG_DIRS: handle}
