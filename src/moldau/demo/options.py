"""What to demonstrate with, and the directory of one demonstration: whose it is, and what it was made from."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moldau.adapters.usable_directory import check_usable
from moldau.adapters.whole_file import write_whole
from moldau.demo.inputs import EventInput

BROKER_FOLDER, CLUSTER_FOLDER, TIERS_FOLDER = "broker", "cluster", "tiers"
"""Data of one broker, of a cluster, and of several clusters."""
BROKERS = 3
ROOM_BYTES = 8 << 20
"""Brokers' files, a small table and Spark's log; the flights take many times as much."""


class DemoError(RuntimeError):
    """The demonstration cannot run, or has to stop; what it did so far stays."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to demonstrate with. `file`, `key` and `time` are what `input` was opened with."""

    directory: Path
    input: EventInput
    file: Path | None = None
    key: str | None = None
    time: str | None = None
    partitions: int = 6
    compression: str = "zstd"
    refuse_bad_lines: bool = True
    """Whether a line that is no event stops the run before anything is published; otherwise it becomes a dead letter."""
    plant_loss: bool = False
    """Whether one event is counted by its producer and never sent."""
    cores: int = 2
    small: bool = False
    """One cluster in place of the topology."""
    brokers: int | None = None
    """Of the one cluster; of several one is killed on the way. None: as many as the directory was made with, or `BROKERS`."""


@contextmanager
def sole_user(directory: Path) -> Iterator[None]:
    """A lock on the directory that ends with this process, however it ends. StorageError where it cannot be used."""
    check_usable(str(directory.absolute()), "a directory of the demonstration", "--dir", room_bytes=ROOM_BYTES)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "demo.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"{directory}: another run is at work here") from None
        yield


def check_description(directory: Path, options: DemoOptions) -> int:
    """The same directory is used for the same input: how many brokers it has. DemoError names the difference."""
    mine: dict[str, Any] = {
        "small": options.small,
        "brokers": options.brokers or BROKERS,
        "input": str(options.file.resolve()) if options.file else None,
        "key": options.key,
        "time": options.time,
        "topic": options.input.service,
        "partitions": options.partitions,
        "plant_loss": options.plant_loss,
    }
    file = directory / "demo.json"
    if not file.exists():
        for folder in (BROKER_FOLDER, CLUSTER_FOLDER, TIERS_FOLDER):
            if (directory / folder).exists():
                raise DemoError(f"{directory} holds data of brokers and no demo.json; use another --dir, or remove it")
        write_whole(file, json.dumps(mine))
        return options.brokers or BROKERS
    theirs = {"small": True, "brokers": 1, **json.loads(file.read_text())}
    brokers = int(theirs["brokers"])
    mine["brokers"] = options.brokers or brokers
    for name in mine:
        if theirs.get(name) != mine[name]:
            raise DemoError(f"{directory} was made with {name} {theirs.get(name)!r}, not {mine[name]!r}; use another --dir, or remove it")
    return brokers
