"""Protobuf among the schema languages of the registry."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from moldau.registry.schemas.language import (
    PROTOBUF,
    PROTOBUF_ELEMENTS_MAX,
    Incompatibility,
    InvalidSchemaError,
    ParsedSchema,
    ResolvedReference,
)
from moldau.registry.schemas.protobuf.compatibility import ProtoFiles, check
from moldau.registry.schemas.protobuf.compiler import compile_proto
from moldau.registry.schemas.protobuf.printer import print_proto


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


FILE_NAME = "default"
"""The name of the registered file in its descriptor; no file imports it by this name."""

_SCOPES = re.compile(r"(?<![\w/\"])\.?(?:[A-Za-z_]\w*\.)*(?=[A-Za-z_])")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class ParsedProtobufSchema:
    """A valid Protobuf file, with the files it imports."""

    language = PROTOBUF

    def __init__(self, text: str, files: list[FileDescriptorProto], references: Sequence[ResolvedReference]) -> None:
        self._text = text
        self.files = files
        self.references = tuple(references)

    @property
    def name(self) -> str | None:
        """The full name of the first message, or of the first enum."""
        file = self.files[-1]
        first = next((type_.name for types in (file.message_type, file.enum_type) for type_ in types), None)
        return f"{file.package}.{first}" if first and file.package else first

    @cached_property
    def canonical(self) -> str:
        """The text in the registry's layout; one that is so already stays as it is, however it names types, so that a text that a
        registry gave out is found again."""
        printed = print_proto(self.files)
        layouts = {_without_scopes(printed), _without_scopes(print_proto(self.files, normal=True))}
        return self._text if _without_scopes(self._text) in layouts else printed

    def normalized(self) -> "ParsedProtobufSchema":
        """What has no order sorted, and each type by its full name."""
        return _NormalSchema(self._text, self.files, self.references)

    def formatted(self, form: str) -> str:
        """`serialized` is the descriptor in base64."""
        if form != "serialized":
            return self.canonical
        return base64.b64encode(self.files[-1].SerializeToString(deterministic=True)).decode()

    def check(self, older: ParsedSchema) -> list[Incompatibility]:
        """By the rules of Confluent's registry."""
        assert isinstance(older, ParsedProtobufSchema)
        return check(self._typed(), older._typed())

    def _typed(self) -> ProtoFiles:
        return ProtoFiles(self.files, self.references)


class _NormalSchema(ParsedProtobufSchema):
    """A schema whose text is the normal one."""

    @cached_property
    def canonical(self) -> str:
        """The text in the registry's layout, sorted."""
        return print_proto(self.files, normal=True)


class ProtobufLanguage:
    """Reads Protobuf schemas, as text or as a descriptor in base64."""

    name = PROTOBUF

    def parse(self, text: str, references: Sequence[ResolvedReference] = (), *, stored: bool = False) -> ParsedProtobufSchema:
        """Read a schema; InvalidSchemaError names file, line and column of each fault."""
        imported = {reference.name: _as_text(reference.text, {}) for reference in references}
        proto = _as_text(text, imported)
        if sum(each.count("{") + each.count(";") for each in (proto, *imported.values())) > 2 * PROTOBUF_ELEMENTS_MAX:
            raise _too_many()  # before protoc looks: each of them is an element, an option, or in a comment
        files = compile_proto({**imported, FILE_NAME: proto}, FILE_NAME)
        if count_elements(files) > PROTOBUF_ELEMENTS_MAX:
            raise _too_many()
        return ParsedProtobufSchema(proto, files, references)


def _too_many() -> InvalidSchemaError:
    return InvalidSchemaError(f"the schema and its imports have more than {PROTOBUF_ELEMENTS_MAX:,} messages, fields and constants")


def _without_scopes(text: str) -> str:
    """The text with `.flights.v1.Airport` and `v1.Airport` as `Airport`."""
    return _SCOPES.sub("", text)


def _as_text(text: str, imported: dict[str, str]) -> str:
    """The text of a schema that may have come as a descriptor."""
    packed = "".join(text.split())
    if not _BASE64.fullmatch(packed):
        return text
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(packed, validate=True))
    except (binascii.Error, DecodeError):
        return text
    file.name = FILE_NAME
    imports = "".join(f'import "{name}";\n' for name in file.dependency)
    try:
        *files, _ = compile_proto({**imported, FILE_NAME: f'syntax = "proto3";\n{imports}'}, FILE_NAME)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"The imports of the Protobuf descriptor: {error}") from error
    pool = DescriptorPool()
    try:
        for known in (*files, file):
            pool.Add(known)
        return print_proto([*files, file])
    except (TypeError, ValueError, LookupError, StopIteration) as error:
        raise InvalidSchemaError(f"Invalid Protobuf descriptor: {error}") from error
