"""The table of states and requests in docs/transactions.md is what the machine does, cell by cell."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.broker.transactions.events import IdExpiry
from moldau.broker.transactions.transaction import LAST_EPOCH, TransactionState
from moldau.model.errors import ErrorCode, PeerError
from support.transactions import Asked, Told, TransactionWorld, partitions

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition

DOCUMENT = Path(__file__).parents[4] / "docs" / "transactions.md"
MARK = "<!-- table:"
NO_SUCH_REQUEST = "–"
LATER = "waits"
COLUMNS = [
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
]
DECIDED = {
    TransactionState.PREPARE_COMMIT: True,
    TransactionState.PREPARE_ABORT: False,
    TransactionState.COMPLETE_COMMIT: True,
    TransactionState.COMPLETE_ABORT: False,
}
Outcome = Asked | str


class Case:
    """An id in a state; its producer `had` an epoch and `has` one, the same unless the last request gave it another."""

    def __init__(self, state: TransactionState, *, old: bool = False, epoch: int = 5) -> None:
        self.world = TransactionWorld()
        self.world.init("app")
        value = self.world.stored("app")[-1]
        assert value is not None
        self.world.put("app", value._replace(epoch=epoch - 1 if state is TransactionState.EMPTY else epoch))
        self.world.crash()
        self.had = self.has = epoch
        if state is TransactionState.EMPTY:
            self.had = epoch - 1
            assert self.world.init("app", 1000, self.had) == Told(ErrorCode.NONE, 1000, self.has)
            return
        assert self.world.add("app", 1000, epoch, "t-0", old=old) is ErrorCode.NONE
        if state is TransactionState.ONGOING:
            self.had = epoch - 1
            return
        self.world.hold_markers()
        ended = self.world.ask_end("app", 1000, epoch, committed=DECIDED[state], old=old)
        if state.is_complete:
            self.world.release_markers()
            assert ended.told is not None
        self.has = epoch if old else epoch + 1


def verify(case: Case, epoch: int, name: str) -> str:
    told: list[dict[TopicPartition, ErrorCode]] = []
    case.world.coordinator.verify("app", 1000, epoch, partitions(name), told.append)
    return next(iter(told[0].values())).name


def late(case: Case) -> str:
    case.world.clock.advance(100)
    return ""


def unused(case: Case) -> str:
    """As after `transactional.id.expiration.ms`; a transaction that was open would be late long before."""
    coordinator = case.world.coordinator
    partition = coordinator.runtime.coordinator_of("app").state
    partition.runner.take(("app", partition.machines["app"]), IdExpiry())
    return ""


def begin(case: Case) -> str:
    case.world.crash()
    return ""


def end(*, committed: bool, repeated: bool = False, old: bool = False) -> Callable[[Case], Outcome]:
    return lambda case: case.world.ask_end("app", 1000, case.had if repeated else case.has, committed=committed, old=old)


Request = Callable[[Case], Outcome]
REQUESTS: dict[str, Request] = {
    "InitProducerId: another producer": lambda case: case.world.ask_init("app"),
    "InitProducerId: the producer itself": lambda case: case.world.ask_init("app", 1000, case.has),
    "InitProducerId: the producer itself, with the epoch before": lambda case: case.world.ask_init("app", 1000, case.had),
    "InitProducerId: one that was replaced": lambda case: case.world.ask_init("app", 1000, 2),
    "Add: the producer": lambda case: case.world.ask_add("app", 1000, case.has, "t-1"),
    "Add: what is in the transaction": lambda case: case.world.ask_add("app", 1000, case.has, "t-0"),
    "Add: one that was replaced": lambda case: case.world.ask_add("app", 1000, 2, "t-1"),
    "Add: one with another id": lambda case: case.world.ask_add("app", 999, case.has, "t-1"),
    "Verify: in the transaction": lambda case: verify(case, case.has, "t-0"),
    "Verify: not in it": lambda case: verify(case, case.has, "t-1"),
    "Verify: one that was replaced": lambda case: verify(case, 2, "t-0"),
    "EndTxn 5: commit": end(committed=True),
    "EndTxn 5: abort": end(committed=False),
    "EndTxn 5: commit, with the epoch before": end(committed=True, repeated=True),
    "EndTxn 5: abort, with the epoch before": end(committed=False, repeated=True),
    "EndTxn 5: one that was replaced": lambda case: case.world.ask_end("app", 1000, 2, committed=True),
    "EndTxn 5: one with another id": lambda case: case.world.ask_end("app", 999, case.has, committed=True),
    "EndTxn 0–4: commit": end(committed=True, old=True),
    "EndTxn 0–4: abort": end(committed=False, old=True),
    "EndTxn 0–4: one that was replaced": lambda case: case.world.ask_end("app", 1000, 2, committed=True, old=True),
    "EndTxn 0–4: one with another id": lambda case: case.world.ask_end("app", 999, case.has, committed=True, old=True),
    "older than its timeout": late,
    "not used for long": unused,
    "the coordinator begins": begin,
}
OLD = {name for name in REQUESTS if name.startswith(("EndTxn 0", "Verify"))}
LAST = "InitProducerId: another producer, the epochs are used up"
LAST_END = "EndTxn 5: abort, the epochs are used up"


def cell(name: str, state: TransactionState) -> str:
    """What becomes of a request: the code, the epoch given if it is another one, the state if it is another one."""
    used_up = name in (LAST, LAST_END)
    if used_up and state.is_decided:
        return NO_SUCH_REQUEST
    epoch = LAST_EPOCH - (state.is_complete) if used_up else 5
    case = Case(state, old=name in OLD, epoch=epoch)
    request = REQUESTS[{LAST: "InitProducerId: another producer", LAST_END: "EndTxn 5: abort"}.get(name, name)]
    outcome = request(case)
    return f"{text(case, outcome)}{became(case, state)}" or "stays"


def text(case: Case, outcome: Outcome) -> str:
    if isinstance(outcome, str):
        return outcome
    if outcome.told is None:
        return LATER
    code, producer_id, epoch = outcome.told
    given = ""
    if producer_id not in (-1, 1000):
        given = f", a new id with epoch {epoch}"
    elif epoch not in (-1, case.has):
        given = f", epoch +{epoch - case.has}"
    return code.name + given


def became(case: Case, before: TransactionState) -> str:
    try:
        state = case.world.state("app")
    except PeerError:
        return "→ forgotten"
    return "" if state is before else f" → {state.label}"


def document() -> list[list[str]]:
    """The rows of the table."""
    lines = DOCUMENT.read_text().partition(MARK)[2].splitlines()[1:]
    table = lines[: lines.index("")]
    return [[each.strip() for each in line.strip("|").split("|")] for line in table]


NAMES = [*REQUESTS, LAST, LAST_END]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_the_document_is_what_happens(name: str) -> None:
    rows = {row[0]: row[1:] for row in document()}
    assert rows[name] == [cell(name, state).strip() for state in COLUMNS]


def test_the_document_has_these_rows_and_no_others() -> None:
    header, _, *rows = document()
    assert header[1:] == [state.label for state in COLUMNS]
    assert [row[0] for row in rows] == NAMES
