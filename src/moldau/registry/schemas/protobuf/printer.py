"""A Protobuf descriptor as text, in the layout in which Confluent's registry stores Protobuf schemas.

A descriptor has `.flights.Airport` everywhere. Text has `Airport` inside the package `flights`: a name is looked up from the
innermost scope outwards, by its first part. The stored text has, as people write it, the shortest name that leads to a type of the
same package, and the full name of others.

A descriptor holds extensions as bytes under a number. They are read with a pool of the schema's own files, where each number has its
name and type.

Comments and blank lines of the text that was registered are dropped, and so is the order of things of different kinds: in a message come
reserved numbers, options, fields, oneofs, extensions, nested messages and enums. Messages keep their order, since a record on the wire
names its message by its place.

The normal form (`normalize=true`) also sorts what has no order: imports, options, fields by number, constants by number; and it names
each type in full.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


def block(head: str, sections: list[list[str]]) -> str:
    """A head with statements in braces; sections that are not empty have a blank line between them."""
    inside = "\n".join("".join(indented(statement) for statement in section) for section in sections if section)
    return f"{head} {{\n{inside}}}\n" if inside else f"{head} {{}}\n"


def indented(text: str) -> str:
    """Each line two spaces further right; empty ones stay empty."""
    return "".join(f"  {line}\n" if line else "\n" for line in text.removesuffix("\n").split("\n"))


def listed(settings: list[str]) -> str:
    """Options in brackets, on lines of their own if there are several."""
    if not settings:
        return ""
    if len(settings) == 1:
        return f" [{settings[0]}]"
    return " [\n" + indented(",\n".join(settings)) + "]"


def number_range(first: int, last: int, most: int) -> str:
    """Numbers as ``reserved`` and ``extensions`` have them; `most` is the highest that there is."""
    if first == last:
        return str(first)
    return f"{first} to {'max' if last == most else last}"


class Names:
    """All types and packages that a file sees; the file is the last of `files`."""

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self._package = files[-1].package
        self._types: set[str] = set()
        self._scopes: set[str] = set()
        for file in files:
            parts = file.package.split(".") if file.package else []
            self._scopes |= {".".join(parts[: index + 1]) for index in range(len(parts))}
            self._types |= {_within(file.package, enum.name) for enum in file.enum_type}
            for message in file.message_type:
                self._add(file.package, message)
        self._scopes |= self._types

    def shortest(self, full_name: str, scope: str) -> str:
        """The text that means `.full_name` inside `scope`; with a dot in front if nothing else does."""
        parts = full_name.removeprefix(".").split(".")
        wanted = ".".join(parts)
        at_home = not self._package or wanted.startswith(f"{self._package}.")
        for index in range(len(parts) - 1 if at_home else 0, -1, -1):
            name = ".".join(parts[index:])
            if self._meaning(name, scope) == wanted:
                return name
        return "." + wanted

    def _meaning(self, name: str, scope: str) -> str | None:
        """What protoc takes a name for: once the first part is found, the rest must be there."""
        first, dot, _ = name.partition(".")
        while True:
            if _within(scope, first) in (self._scopes if dot else self._types):
                return _within(scope, name)
            if not scope:
                return None
            scope = scope.rpartition(".")[0]

    def _add(self, scope: str, message: DescriptorProto) -> None:
        name = _within(scope, message.name)
        self._types.add(name)
        self._types |= {_within(name, enum.name) for enum in message.enum_type}
        for nested in message.nested_type:
            self._add(name, nested)


def _within(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


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


_SCALARS = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_GROUP", "TYPE_ENUM")
}
_FIELD_NUMBER_END = 2**29
_ENUM_NUMBER_MAX = 2**31 - 1


def print_proto(files: Sequence[FileDescriptorProto], *, normal: bool = False) -> str:
    """The text of the last of the files; the others are those it imports."""
    return _Printer(files, normal).text()


class _Printer:
    def __init__(self, files: Sequence[FileDescriptorProto], normal: bool) -> None:
        self._file = files[-1]
        self._normal = normal
        self._names = Names(files)
        self._options = OptionPrinter(files, sort=normal)

    def text(self) -> str:
        file = self._file
        head = []
        if file.syntax == "editions":
            head.append(f'edition = "{_edition(file)}";\n')
        elif file.syntax == "proto3" or not self._normal:
            head.append(f'syntax = "{file.syntax or "proto2"}";\n')
        if file.package:
            head.append(f"package {file.package};\n")
        groups = _group_names(file.extension)
        plain = [message for message in file.message_type if message.name not in groups]
        messages = [self._message(message, file.package) for message in plain]
        enums = [self._enum(enum) for enum in file.enum_type]
        sections = [
            self._imports(),
            [f"option {setting};\n" for setting in self._options.settings(file.options)],
            messages + enums,
            self._extends(file.extension, file.package, file.message_type),
            [self._service(service) for service in file.service],
        ]
        return "".join(head) + "".join("\n" + "".join(section) for section in sections if section)

    def _imports(self) -> list[str]:
        public = {self._file.dependency[index] for index in self._file.public_dependency}
        plain = [name for name in self._file.dependency if name not in public]
        again = [name for name in self._file.dependency if name in public]
        if self._normal:
            plain, again = sorted(plain), sorted(again)
        return [f'import "{name}";\n' for name in plain] + [f'import public "{name}";\n' for name in again]

    # Messages.

    def _message(self, message: DescriptorProto, scope: str) -> str:
        return block(f"message {message.name}", self._message_body(message, f"{scope}.{message.name}" if scope else message.name))

    def _message_body(self, message: DescriptorProto, scope: str) -> list[list[str]]:
        """The sections of a message."""
        ranges = [number_range(start, end, _FIELD_NUMBER_END - 1) for start, end in self._ranges(message.reserved_range, 1)]
        plain = [field for field in message.field if not field.HasField("oneof_index") or field.proto3_optional]
        members: dict[int, list[FieldDescriptorProto]] = {}
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                members.setdefault(field.oneof_index, []).append(field)
        oneofs = [(message.oneof_decl[index], members[index]) for index in sorted(members)]
        if self._normal:
            oneofs.sort(key=lambda pair: min(field.number for field in pair[1]))
        entries = {f".{scope}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
        groups = {field.type_name for field in (*message.field, *message.extension) if field.type == FieldDescriptorProto.TYPE_GROUP}
        nested = [inner for inner in message.nested_type if not inner.options.map_entry and f".{scope}.{inner.name}" not in groups]
        return [
            self._reserved(ranges, message.reserved_name),
            [f"option {setting};\n" for setting in self._options.settings(message.options)],
            [self._field(field, scope, message.nested_type, entries) for field in self._by_number(plain)],
            [self._oneof(oneof, fields, scope, message.nested_type) for oneof, fields in oneofs],
            [self._extensions(message, index) for index in range(len(message.extension_range))],
            self._extends(message.extension, scope, message.nested_type),
            [self._message(inner, scope) for inner in nested] + [self._enum(enum) for enum in message.enum_type],
        ]

    def _by_number(self, fields: Iterable[FieldDescriptorProto]) -> list[FieldDescriptorProto]:
        return sorted(fields, key=lambda field: field.number) if self._normal else list(fields)

    def _field(
        self,
        field: FieldDescriptorProto,
        scope: str,
        messages: Iterable[DescriptorProto],
        entries: dict[str, DescriptorProto] | None = None,
        *,
        label: bool = True,
    ) -> str:
        entry = (entries or {}).get(field.type_name)
        if entry is not None:
            key, value = entry.field
            words = f"map<{self._type(key, scope)}, {self._type(value, scope)}>"
        else:
            words = (self._label(field) if label else "") + self._type(field, scope)
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            group = next(message for message in messages if field.type_name.rpartition(".")[2] == message.name)
            inside = field.type_name.removeprefix(".")
            return block(f"{words} {group.name} = {field.number}{self._field_options(field)}", self._message_body(group, inside))
        return f"{words} {field.name} = {field.number}{self._field_options(field)};\n"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return "repeated "
        if field.label == FieldDescriptorProto.LABEL_REQUIRED:
            return "required "
        return "optional " if field.proto3_optional or self._file.syntax in ("", "proto2") else ""

    def _type(self, field: FieldDescriptorProto, scope: str) -> str:
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            return "group"
        if field.type in _SCALARS:
            return str(_SCALARS[field.type])
        return self._named(field.type_name, scope)

    def _named(self, full_name: str, scope: str) -> str:
        return full_name if self._normal else self._names.shortest(full_name, scope)

    def _field_options(self, field: FieldDescriptorProto) -> str:
        settings = self._options.settings(field.options)
        if field.HasField("default_value"):
            settings.append(f"default = {_default(field)}")
        if field.HasField("json_name") and field.json_name != _camel_case(field.name) and not field.extendee:
            settings.append(f"json_name = {quoted(field.json_name)}")
        return listed(sorted(settings) if self._normal else settings)

    def _oneof(
        self, oneof: OneofDescriptorProto, fields: list[FieldDescriptorProto], scope: str, messages: Iterable[DescriptorProto]
    ) -> str:
        options = [f"option {setting};\n" for setting in self._options.settings(oneof.options)]
        members = [self._field(field, scope, messages, label=False) for field in self._by_number(fields)]
        return block(f"oneof {oneof.name}", [options, members])

    def _extensions(self, message: DescriptorProto, index: int) -> str:
        numbers = message.extension_range[index]
        words = number_range(numbers.start, numbers.end - 1, _FIELD_NUMBER_END - 1)
        return f"extensions {words}{listed(self._options.settings(numbers.options))};\n"

    def _extends(self, fields: Sequence[FieldDescriptorProto], scope: str, messages: Iterable[DescriptorProto]) -> list[str]:
        """Extensions, those of one message together."""
        extended: dict[str, list[FieldDescriptorProto]] = {}
        for field in fields:
            extended.setdefault(field.extendee, []).append(field)
        return [
            block(f"extend {self._named(name, scope)}", [[self._field(field, scope, messages) for field in self._by_number(theirs)]])
            for name, theirs in extended.items()
        ]

    # Enums, services.

    def _enum(self, enum: EnumDescriptorProto) -> str:
        ranges = [number_range(start, end, _ENUM_NUMBER_MAX) for start, end in self._ranges(enum.reserved_range, 0)]
        values = sorted(enum.value, key=lambda value: (value.number, value.name)) if self._normal else enum.value
        options = [f"option {setting};\n" for setting in self._options.settings(enum.options)]
        constants = [f"{value.name} = {value.number}{listed(self._options.settings(value.options))};\n" for value in values]
        return block(f"enum {enum.name}", [self._reserved(ranges, enum.reserved_name) + options + constants])

    def _ranges(self, ranges: Iterable[Any], beyond: int) -> list[tuple[int, int]]:
        """First and last numbers; descriptors of messages give the number beyond the last."""
        numbers = [(range_.start, range_.end - beyond) for range_ in ranges]
        return sorted(numbers) if self._normal else numbers

    def _reserved(self, ranges: list[str], names: Sequence[str]) -> list[str]:
        """Numbers and names that may not be used; editions write names without quotes."""
        words = [name if self._file.syntax == "editions" else quoted(name) for name in names]
        if self._normal:
            return [f"reserved {one};\n" for one in (*ranges, *sorted(words))]
        return [f"reserved {', '.join(several)};\n" for several in (ranges, words) if several]

    def _service(self, service: ServiceDescriptorProto) -> str:
        options = [f"option {setting};\n" for setting in self._options.settings(service.options)]
        calls = []
        for method in service.method:
            scope = f"{self._file.package}.{service.name}" if self._file.package else service.name
            asks = ("stream " if method.client_streaming else "") + self._named(method.input_type, scope)
            gives = ("stream " if method.server_streaming else "") + self._named(method.output_type, scope)
            inside = self._statements(method.options)
            calls.append(f"rpc {method.name} ({asks}) returns ({gives}){inside};\n")
        return block(f"service {service.name}", [options, calls])

    def _statements(self, options: Message) -> str:
        settings = self._options.settings(options)
        return " {\n" + "".join(indented(f"option {setting};\n") for setting in settings) + "}" if settings else ""


def _group_names(fields: Iterable[FieldDescriptorProto]) -> set[str]:
    return {field.type_name.rpartition(".")[2] for field in fields if field.type == FieldDescriptorProto.TYPE_GROUP}


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return quoted(field.default_value)
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return f'"{field.default_value}"'
    return str(field.default_value)


def _camel_case(name: str) -> str:
    """The name in JSON if none is set: `gate_number` becomes `gateNumber`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _edition(file: FileDescriptorProto) -> str:
    return str(Edition.Name(file.edition)).removeprefix("EDITION_")
