"""A TOML file that plans mirrors or tiers, read table by table and key by key: what is missing, not known or of the wrong kind is an error
with file and line.

Names of keys may have dots, ``bootstrap.servers``, which TOML reads as nested tables. Here they are names, in quotes or not.
"""

import pathlib
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn, TypeVar

from moldau.model.near_names import did_you_mean
from moldau.model.toml_lines import Path, lines_of_keys

_Choice = TypeVar("_Choice", bound=Enum)
_Parsed = TypeVar("_Parsed")

_KINDS: Mapping[type, str] = {str: "a text", bool: "true or false", int: "an integer", list: "a list", dict: "a table", float: "a number"}
INT64_MAX = 2**63 - 1
_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class PlanFileError(ValueError):
    """A file of a mirror or of tiers that is not valid; the message names the file and, if the file can be read, the line."""


def read_document(path: pathlib.Path) -> "Table":
    """The whole of a file. PlanFileError names file and line."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise PlanFileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PlanFileError(f"{path}:{line}: not UTF-8: {error.reason}") from error
    return parse_document(text, str(path))


def parse_document(text: str, file: str) -> "Table":
    """The document that this text is; `file` is its name in messages. PlanFileError."""
    try:
        content = tomllib.loads(text)
        origin = Origin(file, lines_of_keys(text))
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(error, text, file) from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, or lists as deep
        raise PlanFileError(f"{file}:1: not TOML that can be read: {error}") from error
    return Table(origin, (), content, content)


def _syntax_error(error: tomllib.TOMLDecodeError, text: str, file: str) -> PlanFileError:
    found = _AT.search(str(error))
    line = found[1] if found and found[1] else len(text.splitlines())
    return PlanFileError(f"{file}:{line}: not TOML: {_AT.sub('', str(error))}")


@dataclass(frozen=True, slots=True)
class Origin:
    """The file, and the lines of its keys."""

    file: str
    lines: Mapping[Path, int]

    def fail(self, path: Path, problem: str) -> NoReturn:
        """PlanFileError at the key, or at the nearest table around it that has a line."""
        raise PlanFileError(f"{self.file}:{self.line(path)}: {problem}")

    def line(self, path: Path) -> int:
        """The line of the key, or of the nearest table around it that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def kind_of(value: object) -> str:
    """What a value is, for messages."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return repr(value)
    return _KINDS.get(type(value), "a date or time")


class Table:
    """One table. Keys that are in `tables` hold tables with names of the user's; in the other ones a nested table is a name with dots."""

    __slots__ = ("_entries", "_origin", "_path")

    def __init__(self, origin: Origin, path: Path, content: Mapping[str, Any], tables: Collection[str] = ()) -> None:
        self._origin = origin
        self._path = path
        self._entries: dict[str, tuple[Path, Any]] = {}
        for name, where, value in _flat("", path, content, tables):
            if name in self._entries:
                origin.fail(where, f"{self._label(name)} comes twice, in quotes and without")
            self._entries[name] = where, value

    def _label(self, name: str) -> str:
        return f"[{'.'.join(map(str, self._path))}] {name}" if self._path else name

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    @property
    def file(self) -> str:
        """The name of the file."""
        return self._origin.file

    def line(self, name: str = "") -> int:
        """Where a key is; without a name, or where the table does not have it, where the table begins."""
        return self._origin.line(self._entries[name][0] if name in self else self._path)

    def fail(self, name: str, problem: str, *inner: str | int) -> NoReturn:
        """PlanFileError at the key, or at the header if the table does not have it. `inner` leads to a part of its value."""
        path = (*self._entries[name][0], *inner) if name in self._entries else self._path
        self._origin.fail(path, f"{self._label(name)}: {problem}")

    def fail_here(self, problem: str) -> NoReturn:
        """PlanFileError at the header."""
        self._origin.fail(self._path, f"[{'.'.join(map(str, self._path))}]: {problem}")

    def only(self, *known: str, hint: str = "") -> None:
        """PlanFileError for the first key that is none of these."""
        for name in self._entries:
            if name not in known:
                self.fail(name, f"not known{did_you_mean(name, known)}; there are {', '.join(known)}{hint}")

    def _get(self, name: str, kind: type, default: Any) -> Any:
        if name not in self._entries:
            if default is None:
                self.fail(name, f"is missing; it is {_KINDS[kind]}")
            return default
        value = self._entries[name][1]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.fail(name, f"must be {_KINDS[kind]}, not {kind_of(value)}")
        return value

    def text(self, name: str) -> str:
        """A text that has to be there."""
        value: str = self._get(name, str, None)
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """True or false."""
        value: bool = self._get(name, bool, default)
        return value

    def integer(self, name: str, default: int, *, at_least: int, at_most: int = INT64_MAX) -> int:
        """An integer within bounds."""
        value: int = self._get(name, int, default)
        if not at_least <= value <= at_most:
            self.fail(name, f"must be from {at_least:,} to {at_most:,}, not {value:,}")
        return value

    def choice(self, name: str, default: _Choice) -> _Choice:
        """One of the values of an enumeration of texts."""
        return self.one_of(name, type(default)) if name in self else default

    def one_of(self, name: str, choices: type[_Choice]) -> _Choice:
        """The same, where it has to be there."""
        allowed = [choice.value for choice in choices]
        value = self._entries[name][1] if name in self else None
        if value not in allowed:
            words = " or ".join(f'"{each}"' for each in allowed)
            self.fail(name, f"is missing; it is {words}" if value is None else f"must be {words}, not {kind_of(value)}")
        return choices(value)

    def parsed(self, name: str, parse: Callable[[str], _Parsed]) -> _Parsed:
        """A text that has to be there, as `parse` reads it, which raises ValueError."""
        text = self.text(name)
        try:
            return parse(text)
        except ValueError as error:
            self.fail(name, str(error))

    def list_of(self, name: str, parse: Callable[[str], _Parsed], default: tuple[_Parsed, ...] | None) -> tuple[_Parsed, ...]:
        """A list of texts, each as `parse` reads it. Without a default it has to be there."""
        if default is not None and name not in self:
            return default
        found = []
        for index, value in enumerate(self._get(name, list, None)):
            if not isinstance(value, str):
                self.fail(name, f"must be a list of texts, not of {kind_of(value)}", index)
            try:
                found.append(parse(value))
            except ValueError as error:
                self.fail(name, str(error), index)
        return tuple(found)

    def raw(self, name: str) -> object:
        """The value as it is."""
        return self._entries[name][1]

    def table(self, name: str, tables: Collection[str] = (), *, required: bool = False) -> "Table":
        """A table in this one; empty if it may be missing and is."""
        return Table(self._origin, (*self._path, name), self._get(name, dict, None if required else {}), tables)

    def named_tables(self, name: str, tables: Collection[str] = ()) -> Iterator[tuple[str, "Table"]]:
        """The tables in one whose names are the user's, in their order."""
        outer = self._get(name, dict, {})
        path = (*self._path, name)
        for inner, content in outer.items():
            if not isinstance(content, dict):
                self._origin.fail((*path, inner), f"[{'.'.join(map(str, path))}] {inner}: must be a table, not {kind_of(content)}")
            yield inner, Table(self._origin, (*path, inner), content, tables)


def _flat(prefix: str, path: Path, content: Mapping[str, Any], tables: Collection[str]) -> Iterator[tuple[str, Path, Any]]:
    for key, value in content.items():
        name, where = prefix + key, (*path, key)
        if isinstance(value, dict) and value and name not in tables:
            yield from _flat(f"{name}.", where, value, tables)
        else:
            yield name, where, value
