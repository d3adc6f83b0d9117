"""The file of a version: it appears whole, durable, and only if no other writer has made one of its name."""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from moldau.lake.tables.format import TableError, UnansweredCommitError, VersionTakenError
from moldau.lake.tables.places.addresses import joined, place_of
from moldau.lake.tables.places.place import UnansweredError, reason


def name_of(folder: str, version: int) -> str:
    """The file of a version, below the table."""
    return f"{folder}/{version:020d}.json"


def numbers_in(names: list[str]) -> list[int]:
    """The versions among files of a folder, rising."""
    return sorted(int(name[:20]) for name in names if name[20:] == ".json" and name[:20].isdecimal())


def commit_id() -> str:
    """For the words of a version: by it a writer whose answer was lost knows its own."""
    return uuid.uuid4().hex


def make_version(path: str, folder: str, version: int, content: str) -> None:
    """VersionTakenError; UnansweredCommitError if it is not known whether it was made; TableError, and then nothing has happened."""
    name = name_of(folder, version)
    try:
        place_of(path).put_new(name, content.encode())
    except FileExistsError:
        raise VersionTakenError(f"{path}: version {version} exists already") from None
    except UnansweredError as error:
        raise UnansweredCommitError(f"{path}: it is not known whether version {version} was made: {error}") from error
    except OSError as error:
        raise TableError(f"{joined(path, name)}: cannot be written: {reason(error)}") from error


def prepare(path: str, folder: str) -> None:
    """Make the place for versions. TableError."""
    try:
        place_of(path).prepare(folder)
    except OSError as error:
        raise TableError(f"{joined(path, folder)}: cannot be made: {reason(error)}") from error


def dumped(value: Mapping[str, Any]) -> str:
    """As JSON, short."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
