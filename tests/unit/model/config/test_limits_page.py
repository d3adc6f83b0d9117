"""``docs/limits.md`` names every setting that is a bound, with its default as it is; what it names exists, has an effect and changes when
it says so."""

import re
from pathlib import Path

import pytest

from moldau.model.config import BROKER, TOPIC, UpdateMode, format_value

PAGE = Path(__file__).parents[4] / "docs" / "limits.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMES = re.findall(r"`((?:[a-z]+\.)+[a-z]+)`", TEXT)
ROWS = re.findall(r"^\| (`[a-z.]+`[^|]*) \| `([^|`]*)` \|", TEXT, re.MULTILINE)

NO_BOUNDS = {
    "log.index.size.max.bytes": "size of a file at which the log goes on in another",
    "log.cleaner.io.max.bytes.per.second": "of our own work",
    "replica.alter.log.dirs.io.max.bytes.per.second": "how fast an administrator has logs moved",
    "log.cleaner.max.compaction.lag.ms": "when compaction begins",
    "log.recovery.batches.max": "of our own work",
    "log.message.timestamp.after.max.ms": "which timestamps are taken",
    "log.message.timestamp.before.max.ms": "which timestamps are taken",
    "add.partitions.to.txn.retry.backoff.max.ms": "how long we try",
    "zookeeper.max.in.flight.requests": "of our own requests",
    "controlled.shutdown.max.retries": "of our own requests",
    "replica.fetch.max.bytes": "of our own requests",
    "replica.fetch.response.max.bytes": "of our own requests",
    "replica.fetch.wait.max.ms": "of our own requests",
    "replica.lag.time.max.ms": "which replicas are in sync",
}
"""Settings with a `max` in the name that bound nothing of what clients take."""


def is_bound(name: str) -> bool:
    return "max" in name.split(".") or "limit" in name.split(".")


@pytest.mark.parametrize("name", sorted(name for name, each in BROKER.items() if is_bound(name) and each.in_effect))
def test_every_bound_is_on_the_page(name: str) -> None:
    assert (name in NAMES) != (name in NO_BOUNDS), f"{name}: give it a row in docs/limits.md"


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_what_the_page_names_exists(name: str) -> None:
    definition = BROKER.get(name) or TOPIC.get(name)
    assert definition is not None, f"{name} is no setting"
    assert definition.in_effect


@pytest.mark.parametrize(("names", "default"), ROWS)
def test_defaults_and_marks_are_those_of_the_table(names: str, default: str) -> None:
    name = names.split("`")[1]
    definition = BROKER[name]
    assert format_value(definition, definition.default) == default
    assert (f"`{name}` ⟳" in names) == (definition.mode is not UpdateMode.READ_ONLY)


def test_there_are_rows() -> None:
    assert len(ROWS) > 30
