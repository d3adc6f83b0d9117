"""protoc, inside this process: texts of .proto files in, descriptors out, faults by line and column.

`grpcio-tools` holds protoc as a library and can give the Python code that it generates for a file and all it imports. That code holds
each file's descriptor as bytes. Asked this way protoc answers in about a millisecond and reports faults as objects; asked by its
command line it prints them, and a process of its own takes a tenth of a second to start.

Files are found in this order: the texts given, the well-known types that come with protoc, the common types beside this module
(`google/type`, `confluent`), which producers use without registering them.
"""

import ast
import os
import re
import tempfile
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_tools import _protoc_compiler

from moldau.registry.schemas.language import InvalidSchemaError

_WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"
_COMMON = Path(__file__).parent / "common"
_ONE_AT_A_TIME = threading.Lock()
_BLANK = re.compile(r"\s+")
_SYNTAX = re.compile(r"(syntax|edition)\b")
_DEFAULT_SYNTAX = 'syntax = "proto2";\n'
"""Put in front of a text that names no syntax, on a line of its own; protoc takes it for this one too, but complains on standard error."""

_SERIALIZED = re.compile(rb"AddSerializedFile\((b'(?:[^'\\]|\\.)*')\)", re.DOTALL)
_PART = re.compile(r"[^/\\\0]+")


def compile_proto(texts: Mapping[str, str], root: str) -> list[FileDescriptorProto]:
    """The descriptors of `root` and of all it imports, itself last; InvalidSchemaError names file, line and column of each fault."""
    shifted = {name for name, text in texts.items() if not _names_syntax(text)}
    with tempfile.TemporaryDirectory(prefix="moldau-proto-") as folder:
        for name, text in texts.items():
            path = Path(folder, check_import_path(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_encoded(_DEFAULT_SYNTAX + text if name in shifted else text))
        generated = _run(root, [Path(folder), _WELL_KNOWN, _COMMON], shifted)
    files = {file.name: file for _, code in generated for file in _descriptors(code)}
    return [*(file for name, file in files.items() if name != root), files[root]]


def _names_syntax(text: str) -> bool:
    """Whether the first statement, after blanks and comments, is `syntax` or `edition`. Each character is read once."""
    at = 0
    while True:
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        if text.startswith("//", at):
            end, size = text.find("\n", at), 1
        elif text.startswith("/*", at):
            end, size = text.find("*/", at + 2), 2
        else:
            return _SYNTAX.match(text, at) is not None
        if end < 0:
            return False
        at = end + size


def check_import_path(name: str) -> str:
    """The name if it can be imported: a relative path that leads nowhere else."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or any(part == ".." or not _PART.fullmatch(part) for part in parts):
        raise InvalidSchemaError(f"{name!r} is no import path of a Protobuf schema")
    return name


def _run(root: str, folders: list[Path], shifted: set[str]) -> list[tuple[bytes, bytes]]:
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore", _protoc_compiler.ProtocWarning)
        try:
            generated: list[tuple[bytes, bytes]] = _protoc_compiler.get_protos(root.encode(), [os.fsencode(folder) for folder in folders])
        except _protoc_compiler.ProtocErrors as error:
            faults = "; ".join(_fault(fault, shifted) for fault in error.errors())
            raise InvalidSchemaError(f"Invalid Protobuf schema: {faults}") from error
    return generated


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSchemaError(f"Invalid Protobuf schema: {error}") from error


def _fault(error: object, shifted: set[str]) -> str:
    """Line and column count from 1, where protoc counts from 0; a fault of the whole file has line -1."""
    file, line, column = _text(getattr(error, "filename", b"")), getattr(error, "line", -1), getattr(error, "column", -1)
    place = f"line {line + (0 if file in shifted else 1)}, column {column + 1}: " if line >= 0 else ""
    return f"{file}, {place}{_text(getattr(error, 'message', b''))}"


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _descriptors(code: bytes) -> list[FileDescriptorProto]:
    """What the generated code adds to its pool."""
    return [FileDescriptorProto.FromString(ast.literal_eval(found.group(1).decode())) for found in _SERIALIZED.finditer(code)]
