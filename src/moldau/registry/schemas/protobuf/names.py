"""The names by which one type of a Protobuf schema speaks of another.

A descriptor says `.flights.Airport` everywhere. Text says `Airport` inside the package `flights`: a name is looked up from the
innermost scope outwards, by its first part. The stored text has, as people write it, the shortest name that leads to a type of the
same package, and the full name of others.
"""

from collections.abc import Sequence

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto


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
