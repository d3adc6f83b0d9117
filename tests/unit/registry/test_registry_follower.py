"""Who catches up with ``_schemas`` waits for all that was in it when he asked, and is refused only where records are gone (F1)."""

import time
from collections.abc import Callable, Iterator

import pytest

from moldau.client.errors import failure
from moldau.client.partition_requests import EARLIEST, FetchedBatches, ListedOffset
from moldau.model.errors import ErrorCode
from moldau.model.identity import Offset, TimestampMs, TopicPartition
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import HEADER_SIZE, stamp_crc
from moldau.protocol.records.record import Header, Record
from moldau.registry import schemas_topic as module
from moldau.registry.schemas_topic import Follower, TopicReadError
from moldau.registry.state import RegistryState

PATIENCE_S = 10.0


class FakeCluster:
    """A log of records that mean nothing. `between` is done when its end was looked up, before the answer arrives."""

    end = 3

    def __init__(self, *_: object, **__: object) -> None:
        self.between: Callable[[], object] = lambda: None

    def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        """Where it begins, 0, or its end at the time of asking."""
        found = {
            where: ListedOffset(Offset(0 if which == EARLIEST else FakeCluster.end), TimestampMs(-1), 0) for where, which in wanted.items()
        }
        self.between()
        return found

    def fetch(self, _topic: str, _partition: int, offset: int, _limits: object) -> FetchedBatches:
        """A batch of what is there."""
        end = FakeCluster.end
        if end <= offset:
            time.sleep(0.002)
            return FetchedBatches(memoryview(b""), Offset(end), Offset(end), Offset(0))
        records = encode_batch(
            [Record(each, 0, 0, b'{"keytype":"NOOP","magic":0}', None, []) for each in range(offset, end)], base_offset=offset
        )
        return FetchedBatches(memoryview(records), Offset(end), Offset(end), Offset(0))

    def interrupt(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    monkeypatch.setattr(module, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "end", 3)
    following = Follower("nobody:1", "_schemas", RegistryState())
    following.start()
    following.catch_up(PATIENCE_S)
    yield following
    following.stop()


def test_a_record_that_is_written_and_read_while_the_end_is_asked_is_no_cut(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is looked up, another one writes and the follower reads that, then the answer arrives: it is before what was read."""

    def another_writes() -> None:
        monkeypatch.setattr(FakeCluster, "end", 4)
        follower.wait_for(4, PATIENCE_S)

    monkeypatch.setattr(follower._asking, "between", another_writes)
    assert follower.catch_up(PATIENCE_S) == 3
    assert follower.position == 4


def test_a_start_waits_for_a_long_topic_as_long_as_something_of_it_is_read(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []

    def slow(end: int, _timeout_s: float) -> None:
        """Each wait is over when one more record is read, and the third at the end."""
        waits.append(end)
        if len(waits) < 3:
            follower._position += 1
            raise TopicReadError("_schemas", "not there yet")

    monkeypatch.setattr(follower, "wait_for", slow)
    monkeypatch.setattr(FakeCluster, "end", 1000)
    monkeypatch.setattr(follower, "_find_end", lambda _: 1000)
    assert follower.read_all(1.0) == 1000
    assert len(waits) == 3
    follower._position = 5
    monkeypatch.setattr(follower, "wait_for", lambda *_: (_ for _ in ()).throw(TopicReadError("_schemas", "stalled")))
    with pytest.raises(TopicReadError, match="stalled"):
        follower.read_all(1.0)


def test_a_log_that_ends_before_what_was_read_was_cut(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCluster, "end", 2)
    with pytest.raises(TopicReadError, match="ends at offset 2, and was read up to 3 before: it was deleted or truncated"):
        follower.catch_up(PATIENCE_S)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_a_deleted_or_truncated_topic_is_one_line_that_does_not_send_to_a_restart(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    """A restart loads what is left: the schemas in memory are the last copy. And nothing is retried."""

    def fetch(*_: object) -> FetchedBatches:
        raise failure(code, "_schemas-0")

    monkeypatch.setattr(FakeCluster, "fetch", fetch)
    with pytest.raises(TopicReadError):
        follower.wait_for(1000, PATIENCE_S)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "export the schemas or restore the topic first" in line
    assert ("_schemas-0" in line, "retrying" in line, "restart the registry" in line) == (True, False, False)


def test_records_that_cannot_be_read_are_named_and_passed_over(
    follower: Follower, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start reads the topic from its beginning: one record that anybody wrote must not end it. Headers are not looked at at all."""
    value = b'{"subject":"%s","version":1,"id":%d,"schema":"\\"string\\"","deleted":false}'

    def schema(offset: int, subject: bytes) -> Record:
        return Record(offset, 0, 0, b'{"keytype":"SCHEMA","subject":"%s","version":1,"magic":1}' % subject, value % (subject, offset), [])

    monkeypatch.setattr(module, "_DECOMPRESSED_BYTES_MAX", 1 << 20)
    headers: list[Header] = [("", b"")] * 20_000
    broken = bytearray(encode_batch([schema(4, b"lost")], base_offset=4))
    broken[HEADER_SIZE] ^= 2  # the size of its record
    stamp_crc(broken)
    bomb = encode_batch([schema(5, b"lost")._replace(value=bytes(2 << 20))], base_offset=5, compression=Compression.ZSTD)
    log = [
        encode_batch([schema(3, b"a")._replace(headers=headers)], base_offset=3),
        broken,
        bomb,
        encode_batch([schema(6, b"b")], base_offset=6),
    ]
    fetched = FetchedBatches(memoryview(b"".join(map(bytes, log))), Offset(7), Offset(7), Offset(0))
    assert follower._apply(fetched) == 7
    lines = [record.getMessage() for record in caplog.records if "records skipped" in record.getMessage()]
    assert ["_schemas-0 offset=4" in lines[0], "_schemas-0 offset=5" in lines[1], len(lines)] == [True, True, 2]
    assert follower._state.subjects() == ["a", "b"]
