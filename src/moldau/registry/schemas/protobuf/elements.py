"""How many things Protobuf files declare."""

from collections.abc import Iterable

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto


def count_elements(files: Iterable[FileDescriptorProto]) -> int:
    """Messages, fields, oneofs, enums, constants, ranges, extensions, services and methods."""
    count = 0
    messages: list[DescriptorProto] = []
    for file in files:
        messages += file.message_type
        count += len(file.extension) + sum(1 + len(enum.value) for enum in file.enum_type)
        count += sum(1 + len(service.method) for service in file.service)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        count += 1 + len(message.field) + len(message.oneof_decl) + len(message.extension) + len(message.extension_range)
        count += len(message.reserved_range) + len(message.reserved_name) + sum(1 + len(enum.value) for enum in message.enum_type)
    return count
