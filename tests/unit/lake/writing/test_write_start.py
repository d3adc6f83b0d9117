"""Before the first task of a write the driver asks whether the brokers answer: tasks would each try for two minutes (mission I1)."""

import pickle
import socket
import time

import pytest
from pyspark.sql.types import BinaryType, StructType

from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.writing.sink import batch_writer, stream_writer
from moldau.model.errors import WorldError

SCHEMA = StructType().add("value", BinaryType())


@pytest.fixture
def nobody() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("transactional", ["false", "true"])
@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_write_with_nobody_listening_fails_as_a_read_does_before_its_tasks(nobody: str, kind: str, transactional: str) -> None:
    """Spark pickles the writer for the tasks: the moment at which a write begins. A shorter time for deliveries holds here too."""
    given = {"kafka.bootstrap.servers": nobody, "topic": "t", "transactional": transactional, "kafka.delivery.timeout.ms": "200"}
    stream = {**given, "queryName": "q"}
    writer: object = stream_writer(stream, SCHEMA) if kind == "stream" else batch_writer(given, SCHEMA, overwrite=False)
    begun = time.monotonic()
    with pytest.raises(WorldError) as refused:
        pickle.dumps(writer)
    assert time.monotonic() - begun < 20
    with ClusterLog(nobody, "moldau-spark", 0.2) as reading, pytest.raises(WorldError) as read:
        reading.topics([])
    assert str(refused.value) == str(read.value)
