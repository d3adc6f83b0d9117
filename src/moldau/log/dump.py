"""What stands in a file of the log, as rows for a person or a program (``moldau log dump``).

A row is a dict whose ``row`` says what it is about: ``batch``, ``record``, ``offset``, ``time``, ``aborted``, ``producer``,
``partition_offset``, ``leader_epoch``, ``property``, or ``damage``. Damage is a row like any other, with the place it was found at: a dump
never fails over what is in a file.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from moldau.log import names
from moldau.log.checkpoints import LEADER_EPOCHS, OFFSET_CHECKPOINTS, parse_offsets
from moldau.log.damage import DamagedFileError
from moldau.log.indexes import OffsetIndex, TimeIndex
from moldau.log.inspection import DamagedBytes, SoundBatch, inspect, records_of
from moldau.log.leader_epochs import decode_leader_epochs
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.log.meta_properties import parse_meta_properties
from moldau.log.partition_metadata import FILE_NAME as PARTITION_METADATA
from moldau.log.partition_metadata import parse_partition_metadata
from moldau.log.producer_snapshots import BadSnapshotError, decode_snapshot
from moldau.log.transaction_index import ABORTED, ABORTED_VERSION
from moldau.model.errors import MoldauError, PeerError
from moldau.model.identity import format_id
from moldau.ports.filesystem import FileSystem
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import BatchHeader

Row = dict[str, Any]


class UnknownFileError(MoldauError):
    """A file whose name is none of those that the log writes."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: the name is not that of a segment, an index, a snapshot, a checkpoint or a property file")


def dump(files: FileSystem, path: str, *, records: bool = False) -> Iterator[Row]:
    """Rows of one file, chosen by its name; with `records` also those of each batch.

    UnknownFileError, FileNotFoundError, StorageError.
    """
    name = path.rpartition("/")[2].removesuffix(names.DELETED).removesuffix(names.SWAP).removesuffix(names.CLEANED)
    if name.endswith(names.LOG):
        return _dump_log(files, path, _base_offset(name, path), records)
    if name.endswith(names.INDEX):
        base_offset = _base_offset(name, path)
        return _dump_index(
            OffsetIndex.entry, files.read(path), lambda offset, at: {"row": "offset", "offset": base_offset + offset, "log_position": at}
        )
    if name.endswith(names.TIME_INDEX):
        base_offset = _base_offset(name, path)
        return _dump_index(
            TimeIndex.entry, files.read(path), lambda time, offset: {"row": "time", "timestamp": time, "offset": base_offset + offset}
        )
    if name.endswith(names.TRANSACTION_INDEX):
        return _dump_transaction_index(files.read(path))
    if name.endswith(names.SNAPSHOT):
        return _dump_snapshot(files.read(path))
    reader = _TEXT_FILES.get(name)
    if reader is None:
        raise UnknownFileError(path)
    return _dump_text(reader, files.read(path), path)


def _base_offset(name: str, path: str) -> int:
    stem = name.partition(".")[0]
    if not stem.isascii() or not stem.isdigit():
        raise UnknownFileError(path)
    return int(stem)


def _damage(where: int | str, message: str, **more: object) -> Row:
    return {"row": "damage", "position": where, "message": message, **more}


def _dump_log(files: FileSystem, path: str, base_offset: int, records: bool) -> Iterator[Row]:
    file = files.open(path)
    try:
        for found in inspect(file, file.size(), base_offset):
            if isinstance(found, DamagedBytes):
                yield _damage(found.position, found.reason, size=found.size, offset=found.offset)
                if found.header is not None:
                    yield _batch_row(found.header, found.position, valid=False)
            else:
                yield _batch_row(found.header, found.span.position, valid=True)
                if records:
                    yield from _record_rows(found)
    finally:
        file.release()


def _batch_row(header: BatchHeader, position: int, *, valid: bool) -> Row:
    return {
        "row": "batch",
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.timestamp_type_is_log_append else "CreateTime",
        "compression": _codec_name(header.compression),
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": header.has_delete_horizon,
        "crc": header.crc,
        "valid": valid,
    }


def _codec_name(number: int) -> str:
    try:
        return Compression(number).name.lower()
    except ValueError:
        return f"unknown codec {number}"


def _record_rows(batch: SoundBatch) -> Iterator[Row]:
    try:
        records = records_of(batch)
    except PeerError as error:
        yield _damage(batch.span.position, error.message, size=batch.span.size, offset=batch.span.base_offset)
        return
    for index, record in enumerate(records):
        row = {
            "row": "record",
            "offset": record.offset,
            "timestamp": record.timestamp,
            "sequence": -1 if batch.header.base_sequence < 0 else batch.header.base_sequence + index,
            "key": record.key,
            "value": record.value,
            "headers": record.headers,
        }
        if batch.header.is_control:
            row["control"] = _control_name(record.key)
        yield row


_CONTROL_KEY = Struct(">hh")
_CONTROL_NAMES = {
    0: "abort",
    1: "commit",
    2: "leader_change",
    3: "snapshot_header",
    4: "snapshot_footer",
    5: "kraft_version",
    6: "kraft_voters",
}


def _control_name(key: bytes | None) -> str:
    if key is None or len(key) < _CONTROL_KEY.size:
        return "unknown"
    return _CONTROL_NAMES.get(_CONTROL_KEY.unpack_from(key)[1], "unknown")


def _dump_index(layout: Struct, data: bytes, row: Callable[[int, int], Row]) -> Iterator[Row]:
    """Entries of two rising numbers, up to the zeros that Kafka allocates ahead."""
    previous = (-1, -1)
    for position in range(0, len(data) - len(data) % layout.size, layout.size):
        entry: tuple[int, int] = layout.unpack_from(data, position)
        if entry == (0, 0):
            break
        yield row(*entry) | {"position": position}
        if entry[0] <= previous[0] or entry[1] <= previous[1]:
            yield _damage(position, f"entry {entry} does not rise above {previous} before it")
        previous = entry
    yield from _rest(layout, data)


def _rest(layout: Struct, data: bytes) -> Iterator[Row]:
    if rest := len(data) % layout.size:
        yield _damage(len(data) - rest, f"{rest} bytes are left, an entry takes {layout.size}")


def _dump_transaction_index(data: bytes) -> Iterator[Row]:
    for position in range(0, len(data) - len(data) % ABORTED.size, ABORTED.size):
        version, producer_id, first, last, stable = ABORTED.unpack_from(data, position)
        if version != ABORTED_VERSION:
            yield _damage(position, f"entry of unknown version {version}")
            return
        yield {
            "row": "aborted",
            "position": position,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }
    yield from _rest(ABORTED, data)


def _dump_snapshot(data: bytes) -> Iterator[Row]:
    try:
        for entry in decode_snapshot(data):
            yield {"row": "producer", **entry._asdict()}
    except BadSnapshotError as error:
        yield _damage(0, str(error))


def _dump_text(reader: Callable[[bytes, str], Iterator[Row]], data: bytes, path: str) -> Iterator[Row]:
    try:
        yield from reader(data, path)
    except DamagedFileError as error:
        yield _damage(error.where, str(error))


def _offset_rows(data: bytes, path: str) -> Iterator[Row]:
    for (topic, partition), offset in parse_offsets(data, path).items():
        yield {"row": "partition_offset", "topic": topic, "partition": partition, "offset": offset}


def _epoch_rows(data: bytes, path: str) -> Iterator[Row]:
    for epoch, start_offset in decode_leader_epochs(data, path).entries:
        yield {"row": "leader_epoch", "epoch": epoch, "start_offset": start_offset}


def _metadata_rows(data: bytes, path: str) -> Iterator[Row]:
    yield {"row": "property", "name": "topic_id", "value": format_id(parse_partition_metadata(data, path))}


def _property_rows(data: bytes, path: str) -> Iterator[Row]:
    found = parse_meta_properties(data, path)
    for name in ("version", "broker_id", "cluster_id", "directory_id"):
        yield {"row": "property", "name": name, "value": getattr(found, name)}


_TEXT_FILES: dict[str, Callable[[bytes, str], Iterator[Row]]] = {
    **dict.fromkeys(OFFSET_CHECKPOINTS, _offset_rows),
    LEADER_EPOCHS: _epoch_rows,
    PARTITION_METADATA: _metadata_rows,
    META_PROPERTIES: _property_rows,
}
