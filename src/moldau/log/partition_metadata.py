"""``partition.metadata``: the id of the topic that a partition's folder belongs to. See docs/formats/partition-metadata.md.

The third line, a checksum of the two before it, is Moldau's own: Kafka reads no further than it needs. A file of Kafka's has none.
"""

from fastcrc.crc32 import iscsi as crc32c

from moldau.log.damage import DamagedFileError
from moldau.model.identity import format_id, parse_id
from moldau.ports.filesystem import FileSystem

FILE_NAME = "partition.metadata"
VERSION = 0  # do not change: Kafka reads no other


def format_partition_metadata(topic_id: bytes) -> bytes:
    """The file's bytes; like Kafka's, without a line end at the end."""
    content = f"version: {VERSION}\ntopic_id: {format_id(topic_id)}\n".encode()
    return content + _checksum(content)


def parse_partition_metadata(data: bytes, path: str) -> bytes:
    """The topic's id. DamagedFileError."""
    lines = data.decode(errors="replace").split("\n")
    if lines[-1] == "":
        del lines[-1]
    if len(lines) not in (2, 3):
        raise DamagedFileError(path, "line 1", f"{len(lines)} lines, not 2 or 3")
    if lines[0] != f"version: {VERSION}":
        raise DamagedFileError(path, "line 1", f"{lines[0]!r} is not 'version: {VERSION}'")
    if len(lines) == 3 and lines[2].encode() != _checksum(data[: data.rindex(b"\n", 0, len(data) - 1) + 1]):
        raise DamagedFileError(path, "line 3", f"{lines[2]!r} is not the checksum of the lines before")
    name, _, text = lines[1].partition(": ")
    try:
        topic_id = parse_id(text)
    except ValueError as error:
        raise DamagedFileError(path, "line 2", str(error)) from error
    if name != "topic_id" or not any(topic_id):
        raise DamagedFileError(path, "line 2", f"{lines[1]!r} names no topic")
    return topic_id


def read_topic_id(files: FileSystem, folder: str) -> bytes | None:
    """The id that a partition's folder carries; None if it carries none. DamagedFileError, StorageError."""
    path = f"{folder}/{FILE_NAME}"
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    return parse_partition_metadata(data, path)


def write_topic_id(files: FileSystem, folder: str, topic_id: bytes) -> None:
    """Give a folder its id, durably. StorageError."""
    files.write_atomically(f"{folder}/{FILE_NAME}", format_partition_metadata(topic_id))


def _checksum(content: bytes) -> bytes:
    return b"crc32c: %08x" % crc32c(content)
