"""The words between `machine` and the driver: an effect says what is to be done now, an event that it has been done, or what was seen."""

from collections.abc import Sequence
from dataclasses import dataclass

from moldau.lake.writing.decisions import Decision, TaskTransaction

# Effects.


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Become the query's driver. → Owned"""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Go on as the query's driver, if nobody has taken over. → Owned; who is fenced ends here."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the query's last decision. → Found"""


@dataclass(frozen=True, slots=True)
class Look:
    """See how transactions stand. → Seen"""

    transactions: Sequence[TaskTransaction]


@dataclass(frozen=True, slots=True)
class Note:
    """Write a decision down, durably. → Noted"""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit transactions. → Ended"""

    transactions: Sequence[TaskTransaction]


@dataclass(frozen=True, slots=True)
class Abort:
    """Abort transactions, and whatever else the query's tasks have open. → Aborted"""

    transactions: Sequence[TaskTransaction] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """The errand is done; `last` is the query's last decision."""

    last: Decision | None


Effect = TakeOver | GoOn | Read | Look | Note | Commit | Abort | Finish

# Events.


@dataclass(frozen=True, slots=True)
class Owned:
    """This is the query's driver."""


@dataclass(frozen=True, slots=True)
class Found:
    """The last decision, if there is one."""

    decision: Decision | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Which transactions are not open any more."""

    gone: Sequence[TaskTransaction]


@dataclass(frozen=True, slots=True)
class Noted:
    """The decision is written down."""


@dataclass(frozen=True, slots=True)
class Ended:
    """All are committed but those that were lost."""

    lost: Sequence[TaskTransaction]


@dataclass(frozen=True, slots=True)
class Aborted:
    """Nothing of the query is open."""


Event = Owned | Found | Seen | Noted | Ended | Aborted
