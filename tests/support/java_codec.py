"""Kafka's own Java classes as a codec: our messages go there as Kafka's JSON and come back as bytes.

Run as a program it fills in the bytes of a file of golden messages: ``python -m support.java_codec 3.9.1 FILE``, in `tests`.
"""

import json
import subprocess
import sys
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moldau.protocol import messages
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import Blob, ListOf, Nested, WireType, uuid
from support.java import java_command
from support.maven import kafka_libraries
from support.messages import Case, carried

SOURCE = Path(__file__).parents[1] / "conformance" / "java" / "MessageBytes.java"


def message_class(name: str) -> type[Any]:
    """Our class with this name, such as "FetchRequest"."""
    for api_key in ApiKey:
        if name.startswith(api_key.name.title().replace("_", "")):
            pair = messages.load(api_key)
            if name in (pair.request.__name__, pair.response.__name__):
                return pair.request if name == pair.request.__name__ else pair.response
    raise KeyError(name)


def java_name(field: str) -> str:
    """`leader_epoch` as `leaderEpoch`."""
    if field == "is_kraft_controller":
        return "isKRaftController"
    first, *others = field.split("_")
    return first + "".join(part.title() for part in others)


def to_json(message: Any, version: int) -> dict[str, Any]:
    """A message as Kafka writes it in JSON."""
    return {java_name(field.name): _to(field.type, getattr(message, field.name), version) for field in _present(message, version)}


def _present(message: Any, version: int) -> list[Any]:
    """A tagged struct that stands for its defaults is absent there."""
    fields = carried(type(message), version)
    return [f for f in fields if f.tag is None or not isinstance(f.type, Nested) or getattr(message, f.name) is not None]


def _to(wire: WireType, value: Any, version: int) -> Any:
    match wire:
        case _ if value is None:
            return None
        case Nested():
            return to_json(value, version)
        case ListOf():
            return [_to(wire.element, each, version) for each in value]
        case Blob():
            return b64encode(value).decode()
        case _ if wire is uuid:
            return urlsafe_b64encode(value).decode().rstrip("=")
        case _:
            return value


def from_json(cls: type[Any], value: dict[str, Any], version: int) -> Any:
    """A message from Kafka's JSON."""
    present = [field for field in carried(cls, version) if java_name(field.name) in value]
    return cls(**{field.name: _from(field.type, value[java_name(field.name)], version) for field in present})


def _from(wire: WireType, value: Any, version: int) -> Any:
    match wire:
        case _ if value is None:
            return None
        case Nested():
            return from_json(wire.cls, value, version)
        case ListOf():
            return [_from(wire.element, each, version) for each in value]
        case Blob():
            return b64decode(value)
        case _ if wire is uuid:
            return urlsafe_b64decode(value + "==")
        case _:
            return value


def java_bytes(kafka_version: str, tasks: Iterable[tuple[Case, dict[str, Any]]]) -> list[bytes]:
    """What Kafka's classes write, for each message in JSON. Skips the test where there is no Maven."""
    lines = [json.dumps({"message": case.cls.__name__, "version": case.version, "value": value}) for case, value in tasks]
    command = java_command(kafka_libraries(kafka_version), str(SOURCE), memory="512m")
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    encoded = [bytes.fromhex(line) for line in done.stdout.splitlines()]
    assert len(encoded) == len(lines)
    return encoded


def read_golden(path: Path) -> list[tuple[Case, dict[str, Any], bytes]]:
    """Messages in JSON with their bytes, one to a line."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(Case(message_class(row["message"]), row["version"]), row["value"], bytes.fromhex(row["bytes"])) for row in rows]


def write_golden(path: Path, tasks: list[tuple[Case, dict[str, Any]]], encoded: list[bytes]) -> None:
    """The inverse of `read_golden`."""
    rows = [
        {"message": case.cls.__name__, "version": case.version, "value": value, "bytes": data.hex()}
        for (case, value), data in zip(tasks, encoded, strict=True)
    ]
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


if __name__ == "__main__":
    kafka_version, file = sys.argv[1], Path(sys.argv[2])
    given = [(case, value) for case, value, _ in read_golden(file)]
    write_golden(file, given, java_bytes(kafka_version, given))
