"""What a driver writes down of a batch before it ends the transactions of its tasks: the record of the topic ``_spark_commits``.

The key is the query's name, so compaction keeps the last record of each query; the value is JSON with sorted names, version 1::

    {"batch": 7, "query": "flights", "run": "0c4e...", "state": "decided", "time_ms": 1357000000000, "version": 1,
     "transactions": [{"epoch": 3, "id": "moldau-spark-flights-0-0", "producer_id": 12,
                       "written": [["departures", 0, 500, 1000]]}]}

``written`` has topic, partition, rows and the offset of the first of them, for whoever has to find out what is missing. ``run`` is Spark's
id of the query, which lives in its checkpoint: with a new checkpoint the numbers of batches begin anew.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from moldau.lake.writing.transactions import Owner
from moldau.model.errors import MoldauError

DECISIONS_TOPIC = "_spark_commits"
_VERSION = 1
_TASK_PREFIX, _DRIVER_PREFIX = "moldau-spark-", "moldau-spark:"


class DecisionError(MoldauError):
    """A record of the decisions' topic that cannot be read."""


class State(Enum):
    """How far a decision has been carried out."""

    DECIDED = "decided"
    """To be committed, come what may; perhaps some of it is."""
    DONE = "done"
    """All of it is committed."""


class Written(NamedTuple):
    """What a task has in one partition: so many rows, from an offset on."""

    topic: str
    partition: int
    rows: int
    first_offset: int

    def __str__(self) -> str:
        return f"{self.rows} rows in {self.topic}-{self.partition} from offset {self.first_offset} on"


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The transaction of one task, all written and not ended."""

    owner: Owner
    written: tuple[Written, ...]

    def __str__(self) -> str:
        return f"{self.owner}: {', '.join(map(str, self.written))}"


@dataclass(frozen=True, slots=True)
class Decision:
    """One batch of one query is to be seen, whole."""

    query: str
    run: str
    batch: int
    state: State
    transactions: tuple[TaskTransaction, ...]
    time_ms: int

    @property
    def done(self) -> "Decision":
        """The same, carried out; its transactions are of no more use."""
        return replace(self, state=State.DONE, transactions=())

    def covers(self, run: str, batch: int) -> bool:
        """Whether that batch has been decided, so that it is not to be written again."""
        return self.run == run and batch <= self.batch

    def to_bytes(self) -> bytes:
        """The value of the record."""
        transactions = [
            {"id": each.owner.transactional_id, "producer_id": each.owner.producer_id, "epoch": each.owner.epoch, "written": each.written}
            for each in self.transactions
        ]
        fields = {
            "version": _VERSION, "query": self.query, "run": self.run, "batch": self.batch, "state": self.state.value,
            "transactions": transactions, "time_ms": self.time_ms,
        }  # fmt: skip
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "Decision":
        """Read a record's value. DecisionError."""
        try:
            fields = json.loads(value)
            if fields["version"] != _VERSION:
                raise DecisionError(f"a decision of version {fields['version']}; version {_VERSION} is read here")
            transactions = tuple(
                TaskTransaction(Owner(each["id"], each["producer_id"], each["epoch"]), tuple(Written(*where) for where in each["written"]))
                for each in fields["transactions"]
            )
            state = State(fields["state"])
            return cls(fields["query"], fields["run"], fields["batch"], state, transactions, fields["time_ms"])
        except (ValueError, KeyError, TypeError) as error:
            raise DecisionError(f"a decision that cannot be read ({error!r}): {value[:200]!r}") from error


def driver_id(query: str) -> str:
    """The transactional id under which a query's decisions are written; who takes it over is the query's driver from then on."""
    return _DRIVER_PREFIX + query


def task_id(query: str, task: int, attempt: int) -> str:
    """The transactional id of one attempt of a task. Attempts do not fence each other: two may be done, and Spark names the one that
    counts."""
    return f"{_TASK_PREFIX}{query}-{task}-{attempt}"


def ids_of(query: str, transactional_ids: Iterable[str]) -> list[str]:
    """Those of `transactional_ids` that tasks of this query have."""
    found = []
    for each in transactional_ids:
        name, *numbers = each.rsplit("-", 2)
        if name == _TASK_PREFIX + query and len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            found.append(each)
    return found
