"""The differences between an older Protobuf schema and a newer one, by the rules of Confluent's registry.

Names, verdicts and sentences are those of Confluent's registry.

The groups are those of the language guide ("updating a message type"): int32, int64, uint32, uint64, bool and enums; the two sint; the
fixed of each size; string and bytes.

On the wire a field is a number and a value, so fields are compared by number: their names may change, their types within a group that is
encoded alike, their place in a oneof if no two fields that could be set together become exclusive. A message that a field names must keep
its name within its package; if it comes from another file, or another version of it, it is compared too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto

from moldau.registry.schemas.language import COMPARED_PAIRS_MAX, DIFFERENCES_MAX, Incompatibility, ResolvedReference, TooManyPairsError


class ProtobufDifference(NamedTuple):
    """A difference and where it is: `#/Flight/3` is field number 3 of the message Flight."""

    type: str
    path: tuple[str, ...]


HARMFUL = {
    "PACKAGE_CHANGED": "The package at '{path}' in the {reader} schema does not match the package in the {writer} schema",
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '{path}' in the {writer} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the {reader} schema does not match the {writer} schema",
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the {reader} schema does not match its kind in the {writer} schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the {reader} schema does not match its type in the {writer} schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the {reader} schema does not match its label in the {writer} schema"
    ),
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the {reader} schema is missing in the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "The {reader} schema is missing a required field at path: '{path}' in the {writer} schema",
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '{path}' in the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the {reader} schema are outside a oneof in the {writer} schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the {reader} schema is outside an existing oneof in the {writer} schema"
    ),
}
"""The differences that keep a newer schema from reading what an older one wrote. The others are harmless: messages and fields added,
optional fields removed, names changed, enums and their constants changed in any way, oneofs added or removed whole."""


def incompatibility(difference: ProtobufDifference) -> Incompatibility:
    """A difference that does harm, in the registry's words."""
    path = "#/" + "/".join(difference.path)
    return Incompatibility(difference.type, path, HARMFUL[difference.type].replace("{path}", path))


_GROUPS = {
    "general": ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
    "signed": ("SINT32", "SINT64"),
    "text": ("STRING", "BYTES"),
    "fixed32": ("FIXED32", "SFIXED32"),
    "fixed64": ("FIXED64", "SFIXED64"),
    "float": ("FLOAT",),
    "double": ("DOUBLE",),
}
_GROUP_OF = {FieldDescriptorProto.Type.Value(f"TYPE_{name}"): group for group, names in _GROUPS.items() for name in names}


def kind(field: FieldDescriptorProto, map_entry: DescriptorProto | None) -> Literal["scalar", "message", "group", "map"]:
    """Enums are scalars: they are numbers on the wire. Groups are written otherwise than messages."""
    if map_entry is not None:
        return "map"
    if field.type == FieldDescriptorProto.TYPE_GROUP:
        return "group"
    return "scalar" if field.type in _GROUP_OF else "message"


def compare_scalars(before: FieldDescriptorProto, after: FieldDescriptorProto, path: tuple[str, ...]) -> Iterator[ProtobufDifference]:
    """Types of one group may change; a list may become a single value, and back, only for string and bytes.

    A field without a label is an optional one, as the language has it.
    """
    group = _GROUP_OF[before.type]
    if group != _GROUP_OF[after.type]:
        yield ProtobufDifference("FIELD_SCALAR_KIND_CHANGED", path)
    elif before.label != after.label:
        yield ProtobufDifference("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if group == "text" else "FIELD_NUMERIC_LABEL_CHANGED", path)


class Members:
    """The fields of a message by number, and which oneof each is in. What `optional` of proto3 makes is no oneof."""

    def __init__(self, message: DescriptorProto) -> None:
        self.fields = {field.number: field for field in message.field}
        self.oneof_of = {
            field.number: message.oneof_decl[field.oneof_index].name
            for field in message.field
            if field.HasField("oneof_index") and not field.proto3_optional
        }

        self.of: dict[str, list[int]] = {}
        """The numbers of each oneof's fields, in their order."""
        for number, oneof in self.oneof_of.items():
            self.of.setdefault(oneof, []).append(number)


def compare_oneofs(before: Members, after: Members, path: tuple[str, ...]) -> Iterator[ProtobufDifference]:
    """Oneofs by name, and the fields that left one."""
    old, new = (dict.fromkeys(members.oneof_of.values()) for members in (before, after))
    for oneof in new:
        yield from _newly_exclusive(before, after, oneof, path)
    for oneof in sorted(old.keys() ^ new.keys()):
        yield ProtobufDifference("ONEOF_REMOVED" if oneof in old else "ONEOF_ADDED", (*path, oneof))
    kept = {oneof for oneof, numbers in before.of.items() if any(number in after.fields for number in numbers)}
    for number, oneof in before.oneof_of.items():
        if number in after.fields:
            if number not in after.oneof_of:
                yield ProtobufDifference("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", (*path, str(number)))
        elif oneof in new or oneof in kept:
            # The oneof went with all its fields, or else data of this field is lost while the others stay.
            yield ProtobufDifference("ONEOF_FIELD_REMOVED", (*path, oneof, str(number)))


def _newly_exclusive(before: Members, after: Members, oneof: str, path: tuple[str, ...]) -> Iterator[ProtobufDifference]:
    """Fields that could be set together, and can be no longer: they come from different oneofs, or from outside any."""
    groups = set()
    from_outside = 0
    for number in after.of[oneof]:
        if number in before.oneof_of:
            groups.add(before.oneof_of[number])
        elif number in before.fields:
            from_outside += 1
    if len(groups) + from_outside > 1:
        yield ProtobufDifference("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if from_outside > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF", (*path, oneof))


Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A message or enum, the package of its file, and the subject and version the file is registered as (none: the schema itself)."""

    type: DescriptorProto | EnumDescriptorProto
    package: str
    source: tuple[str, int] | None

    def local_name(self, full_name: str) -> str:
        """The name within the package."""
        return full_name.removeprefix(f".{self.package}." if self.package else ".")


class ProtoFiles:
    """A schema and what it imports, with every type by its full name (`.flights.Airport`)."""

    def __init__(self, files: Sequence[FileDescriptorProto], references: Sequence[ResolvedReference]) -> None:
        self.file = files[-1]
        self.types: dict[str, TypeInfo] = {}
        sources = {reference.name: (reference.subject, reference.version) for reference in references}
        for file in files:
            scope = f".{file.package}" if file.package else ""
            source = ("", -1) if file is self.file else sources.get(file.name)
            for name, found in _all_types(scope, file.message_type, file.enum_type):
                self.types[name] = TypeInfo(found, file.package, source)

    def map_entry(self, field: FieldDescriptorProto) -> DescriptorProto | None:
        """The entry of a map field: a message with `key` and `value`, nested beside the field."""
        info = self.types.get(field.type_name)
        entry = info.type if info else None
        return entry if isinstance(entry, DescriptorProto) and entry.options.map_entry else None


def check(newer: ProtoFiles, older: ProtoFiles) -> list[Incompatibility]:
    """Why `newer` cannot read what was written with `older`."""
    return [incompatibility(found) for found in dict.fromkeys(differences(older, newer)) if found.type in HARMFUL]


def differences(original: ProtoFiles, update: ProtoFiles) -> list[ProtobufDifference]:
    """Every difference, harmless ones too."""
    found = []
    if original.file.package != update.file.package:
        found.append(ProtobufDifference("PACKAGE_CHANGED", ()))
    comparison = _Comparison(original, update)
    before, after = original.file, update.file
    found += comparison.messages(before.message_type, after.message_type, ())
    found += _enums(before.enum_type, after.enum_type, ())
    return found


class _Comparison:
    """One comparison. A message that is being compared further up is not compared again within itself, and a pair of messages is compared
    once, however many fields lead to it: its differences are reported then, later only whether they are incompatible."""

    def __init__(self, original: ProtoFiles, update: ProtoFiles) -> None:
        self._original = original
        self._update = update
        self._under_way: set[int] = set()
        self._harmful: dict[tuple[int, int], bool] = {}

    def messages(self, before: Sequence[DescriptorProto], after: Sequence[DescriptorProto], path: Path) -> Iterator[ProtobufDifference]:
        """Messages of one scope, by name; the entries of maps are no messages of their own."""
        old = {message.name: message for message in before if not message.options.map_entry}
        new = {message.name: message for message in after if not message.options.map_entry}
        old_places, new_places = ({name: place for place, name in enumerate(names)} for names in (old, new))
        for name in dict.fromkeys((*old, *new)):
            here = (*path, name)
            if name not in new:
                yield ProtobufDifference("MESSAGE_REMOVED", here)
            elif name not in old:
                yield ProtobufDifference("MESSAGE_ADDED", here)
            else:
                yield from self.message(old[name], new[name], here)
                if old_places[name] != new_places[name]:
                    yield ProtobufDifference("MESSAGE_MOVED", here)

    def message(self, before: DescriptorProto, after: DescriptorProto, path: Path) -> Iterator[ProtobufDifference]:
        """Fields by number, oneofs, then what is nested."""
        pair = (id(before), id(after))
        if id(before) in self._under_way or pair in self._harmful:
            return
        if len(self._harmful) >= COMPARED_PAIRS_MAX:
            raise TooManyPairsError
        self._harmful[pair] = False
        self._under_way.add(id(before))
        found = list(self._fields(before, after, path))
        self._under_way.discard(id(before))
        self._harmful[pair] = _harms(found)  # what is nested may lead back to it
        found += self.messages(before.nested_type, after.nested_type, path)
        found += _enums(before.enum_type, after.enum_type, path)
        self._harmful[pair] = _harms(found)
        yield from _bounded(found)

    def _fields(self, before: DescriptorProto, after: DescriptorProto, path: Path) -> Iterator[ProtobufDifference]:
        old, new = Members(before), Members(after)
        yield from compare_oneofs(old, new, path)
        for number in sorted(old.fields.keys() | new.fields.keys()):
            field, changed = old.fields.get(number), new.fields.get(number)
            if changed is not None:
                here = (*path, new.oneof_of[number], str(number)) if number in new.oneof_of else (*path, str(number))
                if field is not None:
                    yield from self._field(field, changed, here)
                elif number in new.oneof_of:
                    yield ProtobufDifference("ONEOF_FIELD_ADDED", here)
                else:
                    yield ProtobufDifference("REQUIRED_FIELD_ADDED" if _is_required(changed) else "FIELD_ADDED", here)
            elif field is not None and number not in old.oneof_of:
                yield ProtobufDifference("REQUIRED_FIELD_REMOVED" if _is_required(field) else "FIELD_REMOVED", (*path, str(number)))

    def _field(self, before: FieldDescriptorProto, after: FieldDescriptorProto, path: Path) -> Iterator[ProtobufDifference]:
        if before.name != after.name:
            yield ProtobufDifference("FIELD_NAME_CHANGED", path)
        yield from self._types(before, after, path)

    def _types(self, before: FieldDescriptorProto, after: FieldDescriptorProto, path: Path) -> Iterator[ProtobufDifference]:
        old_entry, new_entry = self._original.map_entry(before), self._update.map_entry(after)
        if kind(before, old_entry) != kind(after, new_entry):
            yield ProtobufDifference("FIELD_KIND_CHANGED", path)
        elif old_entry and new_entry:
            for old_part, new_part in zip(old_entry.field, new_entry.field, strict=True):
                yield from self._types(old_part, new_part, path)
        elif kind(before, None) != "scalar":
            yield from self._named_types(before.type_name, after.type_name, path)
        else:
            yield from compare_scalars(before, after, path)

    def _named_types(self, before: str, after: str, path: Path) -> Iterator[ProtobufDifference]:
        """Two messages that a field names: the same name, and the same content if they come from different places."""
        old, new = self._original.types[before], self._update.types[after]
        name = old.local_name(before)
        if name != new.local_name(after):
            yield ProtobufDifference("FIELD_NAMED_TYPE_CHANGED", path)
        elif old.source is None or new.source is None or old.source != new.source:
            assert isinstance(old.type, DescriptorProto)
            assert isinstance(new.type, DescriptorProto)
            yield from self.message(old.type, new.type, tuple(name.split(".")))
            if self._harmful.get((id(old.type), id(new.type)), False):
                yield ProtobufDifference("FIELD_NAMED_TYPE_CHANGED", path)


def _harms(found: list[ProtobufDifference]) -> bool:
    return any(difference.type in HARMFUL for difference in found)


def _bounded(found: list[ProtobufDifference]) -> list[ProtobufDifference]:
    """At most `DIFFERENCES_MAX`, incompatible ones first."""
    if len(found) <= DIFFERENCES_MAX:
        return found
    return sorted(found, key=lambda difference: difference.type not in HARMFUL)[:DIFFERENCES_MAX]


def _enums(before: Sequence[EnumDescriptorProto], after: Sequence[EnumDescriptorProto], path: Path) -> Iterator[ProtobufDifference]:
    """An enum is a number on the wire: nothing that changes in it does harm."""
    old, new = ({enum.name: {value.number: value.name for value in enum.value} for enum in enums} for enums in (before, after))
    for name in dict.fromkeys((*old, *new)):
        if name not in new or name not in old:
            yield ProtobufDifference("ENUM_REMOVED" if name in old else "ENUM_ADDED", (*path, name))
            continue
        for number in sorted(old[name].keys() | new[name].keys()):
            here = (*path, name, str(number))
            if number not in new[name]:
                yield ProtobufDifference("ENUM_CONST_REMOVED", here)
            elif number not in old[name]:
                yield ProtobufDifference("ENUM_CONST_ADDED", here)
            elif old[name][number] != new[name][number]:
                yield ProtobufDifference("ENUM_CONST_CHANGED", here)


def _all_types(
    scope: str, messages: Sequence[DescriptorProto], enums: Sequence[EnumDescriptorProto]
) -> Iterator[tuple[str, DescriptorProto | EnumDescriptorProto]]:
    for enum in enums:
        yield f"{scope}.{enum.name}", enum
    for message in messages:
        name = f"{scope}.{message.name}"
        yield name, message
        yield from _all_types(name, message.nested_type, message.enum_type)


def _is_required(field: FieldDescriptorProto) -> bool:
    return bool(field.label == FieldDescriptorProto.LABEL_REQUIRED)
