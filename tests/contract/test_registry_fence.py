"""The fence around `_schemas` outlasts a flood of forged producer ids: a former writer stays shut out, the present one writes on (F1)."""

from collections.abc import Iterator

import pytest

from moldau.model.errors import ErrorCode
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.registry.records import SchemaKey, SchemaVersion, encode_key, encode_schema
from moldau.registry.schemas_topic import SchemasTopicWriter, WriterFencedError
from moldau.testing import Broker
from support.wire import Wire, produce

IDS_MAX = 50
PRODUCE_VERSION = 9
WRITE = (encode_key(SchemaKey("s", 1)), encode_schema(SchemaVersion("s", 1, 1, '"string"')))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"producer.ids.max": IDS_MAX}) as running:
        yield running


class Stranger:
    """A client that sends `topic` batches with whatever producer id, epoch and sequence it likes."""

    def __init__(self, broker: Broker, topic: str) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self._wire = Wire((host, int(port)))
        self._topic = topic

    def send(self, producer_id: int, epoch: int = 0, sequence: int = 0) -> ErrorCode:
        builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        builder.append(1, b"key", b"value")
        answer = self._wire.ask(produce(self._topic, bytes(builder.build())), PRODUCE_VERSION)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def flood(self) -> None:
        """As many new producers as the broker remembers, twice."""
        for number in range(2 * IDS_MAX):
            assert self.send(1_000_000 + number) is ErrorCode.NONE

    def close(self) -> None:
        self._wire.close()


class Scene:
    """A topic with a former writer, the one that has taken over from it, and a stranger."""

    def __init__(self, broker: Broker, name: str) -> None:
        broker.create_topic(name, 1, {"cleanup.policy": "compact"})
        self.former, self.present = (SchemasTopicWriter(broker.bootstrap_servers, name, name) for _ in range(2))
        self.stranger = Stranger(broker, name)
        self.former.take_over()
        self.former.append_all([WRITE])
        self.present.take_over()
        self.present.append_all([WRITE])

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.former, self.present, self.stranger):
            each.close()


def test_a_former_writer_stays_fenced_and_the_present_one_continues_when_the_partition_has_forgotten_both(broker: Broker) -> None:
    with Scene(broker, "flooded") as scene:
        scene.stranger.flood()
        with pytest.raises(WriterFencedError, match="epoch"):
            scene.former.append_all([WRITE])
        end = scene.present.append_all([WRITE])
        assert scene.present.append_all([WRITE]) == end + 1, "with the sequence that follows"
        scene.stranger.flood()
        assert scene.former.take_over() > end, "and the next writer is not refused"
        with pytest.raises(WriterFencedError):
            scene.present.append_all([WRITE])


def test_a_fence_that_was_forgotten_holds_after_a_restart_too() -> None:
    with Broker(settings={"producer.ids.max": IDS_MAX}) as broker, Scene(broker, "restarted") as scene:
        scene.stranger.flood()
        broker.restart()
        with pytest.raises(WriterFencedError, match="epoch"):
            scene.former.append_all([WRITE])
        scene.present.append_all([WRITE])


@pytest.mark.parametrize("forgotten", [False, True])
def test_an_epoch_that_the_coordinator_never_gave_fences_no_writer(broker: Broker, forgotten: bool) -> None:
    """A stranger that writes with the writers' producer id and a later epoch would have them refused for as many takeovers."""
    with Scene(broker, f"later-{forgotten}") as scene:
        assert scene.present._producer is not None
        producer_id, epoch = scene.present._producer
        if forgotten:
            scene.stranger.flood()
        assert scene.stranger.send(producer_id, epoch + 1000) is ErrorCode.INVALID_PRODUCER_EPOCH
        scene.present.append_all([WRITE])
