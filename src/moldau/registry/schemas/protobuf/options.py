"""Options of a Protobuf schema as text: those of the language, and extensions that the schema imports (`(confluent.field_meta)`).

A descriptor holds extensions as bytes under a number. They are read with a pool of the schema's own files, where each number has its
name and type.
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_DESCRIPTOR_FILE = "google/protobuf/descriptor.proto"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class OptionPrinter:
    """Writes options as `name = value`; `files` are all the files of the schema, in the order of their imports."""

    def __init__(self, files: Sequence[FileDescriptorProto], *, sort: bool) -> None:
        self._sort = sort
        self._pool: DescriptorPool | None = None
        if any(file.name == _DESCRIPTOR_FILE for file in files):
            self._pool = DescriptorPool()
            for file in files:
                self._pool.Add(file)

    def settings(self, options: Message) -> list[str]:
        """Each option that is set, one entry for each value of a repeated one."""
        settings = []
        for field, value in self._read(options).ListFields():
            if field.name == "map_entry" and not field.is_extension:
                continue
            settings += _settings(field, value)
        return sorted(settings) if self._sort else settings

    def _read(self, options: Message) -> Message:
        if self._pool is None:
            return options
        known = GetMessageClass(self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name))
        return known.FromString(options.SerializeToString())


def quoted(text: str) -> str:
    """A string of the language."""
    return '"' + "".join(_ESCAPES.get(character, character if character >= " " else f"\\{ord(character):03o}") for character in text) + '"'


def _settings(field: FieldDescriptor, value: Any) -> list[str]:
    name = f"({field.full_name})" if field.is_extension else field.name
    if name == "features":
        return [f"features.{setting}" for inner, item in value.ListFields() for setting in _settings(inner, item)]
    values = value if field.is_repeated else [value]
    return [f"{name} = {_value(field, item)}" for item in values]


def _value(field: FieldDescriptor, value: Any) -> str:
    match field.type:
        case FieldDescriptor.TYPE_MESSAGE | FieldDescriptor.TYPE_GROUP:
            return _aggregate(value)
        case FieldDescriptor.TYPE_STRING:
            return quoted(value)
        case FieldDescriptor.TYPE_BYTES:
            return '"' + "".join(chr(byte) if 32 <= byte < 127 and chr(byte) not in "\"'\\" else f"\\{byte:03o}" for byte in value) + '"'
        case FieldDescriptor.TYPE_BOOL:
            return "true" if value else "false"
        case FieldDescriptor.TYPE_ENUM:
            known = field.enum_type.values_by_number.get(value)
            return known.name if known else str(value)
        case _:
            return repr(value)


def _aggregate(message: Message) -> str:
    """A message as an option's value, a line for each field."""
    lines = []
    for field, value in message.ListFields():
        name = f"[{field.full_name}]" if field.is_extension else field.name
        if _is_map(field):
            lines += [
                f"{name}: {{ key: {_map_part(field, 'key', key)}, value: {_map_part(field, 'value', value[key])} }}"
                for key in sorted(value)
            ]
        else:
            lines += [f"{name}: {_value(field, item)}" for item in (value if field.is_repeated else [value])]
    inside = ",\n".join(lines)
    return "{\n" + "".join(f"  {line}\n" for line in inside.split("\n")) + "}" if lines else "{}"


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.GetOptions().map_entry)


def _map_part(field: FieldDescriptor, part: str, value: Any) -> str:
    return _value(field.message_type.fields_by_name[part], value)
