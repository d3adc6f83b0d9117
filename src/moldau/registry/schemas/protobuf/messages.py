"""From a registered Protobuf schema to the messages in a topic: their descriptors, and which of them a value is.

After the schema id of the wire format comes the message's path: which message of the file, which within that, and so on, by index. Count
and indexes are zigzag varints; the path [0] is a single 0.
"""

from collections.abc import Sequence
from typing import Protocol

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from moldau.model.errors import ProtocolError
from moldau.protocol.varint import read_varint
from moldau.registry.client import RegisteredSchema, SubjectVersion
from moldau.registry.schemas.language import ResolvedReference
from moldau.registry.schemas.protobuf.language import ProtobufLanguage

PATH_BYTES_MAX = 64


class Versions(Protocol):
    """What is asked of a registry."""

    def version(self, subject: str, version: int, /) -> SubjectVersion:
        """One version of a subject."""


class MessagePathError(ValueError):
    """There is no message at the path that a value has."""


def schema_file(schema: RegisteredSchema | SubjectVersion, registry: Versions) -> FileDescriptor:
    """The file of a schema, in a pool of its own with all that it imports. ValueError; RegistryError."""
    pool = DescriptorPool()
    files = ProtobufLanguage().parse(schema.text, resolved(schema, registry), stored=True).files
    for file in files:
        pool.Add(file)
    return pool.FindFileByName(files[-1].name)


def resolved(schema: RegisteredSchema | SubjectVersion, registry: Versions) -> list[ResolvedReference]:
    """All that the schema imports, directly or not, by the names that it is imported under."""
    found: dict[str, ResolvedReference] = {}

    def visit(each: RegisteredSchema | SubjectVersion) -> None:
        for reference in each.references:
            if reference.name not in found:
                version = registry.version(reference.subject, reference.version)
                found[reference.name] = ResolvedReference(*reference, version.text)
                visit(version)

    visit(schema)
    return list(found.values())


def message_path(body: bytes | memoryview) -> tuple[tuple[int, ...], int]:
    """The path, and where the message begins. MessagePathError."""
    data = bytes(body[:PATH_BYTES_MAX])
    try:
        count, position = read_varint(data, 0)
        if not count:
            return (0,), position
        if not 0 < count <= len(data):
            raise MessagePathError(f"{count} message indexes")
        path = []
        for _ in range(count):
            index, position = read_varint(data, position)
            path.append(index)
    except ProtocolError as error:
        raise MessagePathError(f"the message indexes cannot be read: {error}") from error
    return tuple(path), position


def message_at(file: FileDescriptor, path: Sequence[int]) -> Descriptor:
    """MessagePathError."""
    messages, found = list(file.message_types_by_name.values()), None
    for index in path:
        if not 0 <= index < len(messages):
            raise MessagePathError(f"the schema has no message {'.'.join(map(str, path))}")
        found = messages[index]
        messages = list(found.nested_types)
    assert found is not None
    return found
