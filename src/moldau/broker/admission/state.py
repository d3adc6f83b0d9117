"""A bound on one kind of state that peers can make the broker keep, counted over all peers.

The owner of such state has an `Account`: it adds the size of an object when it is made and subtracts it when it is freed, in O(1).
Before the state grows, `Budget.has_room` is asked. What shrinks or stays as large is always allowed, so that existing clients keep working
at the bound. The setting may change at run time; a limit below what is held refuses growth until enough is released.

While state is read back from disk, growth beside it gets a tenth of the limit in all. So what was acknowledged within the limit has room
when it is read: at the end of reading `is_exceeded` is false for it, whatever requests arrive meanwhile.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.model.config.store import BrokerConfig

_LOG = logging.getLogger(__name__)

NOTES_INTERVAL_S = 60.0
RESERVED = 10
"""One part in this many of the limit is kept for growth of existing state."""


class Budget:
    """Bytes, or a number of objects, that all accounts together hold; bounded by the broker setting named `setting`."""

    __slots__ = ("_granted", "_limit", "_monotonic", "_notes", "held", "refusals", "setting")

    def __init__(self, setting: str, limit: Callable[[], int], monotonic: Callable[[], float]) -> None:
        """`limit` gives the value of the setting as it is now, `monotonic` seconds of a clock that never goes back."""
        self.setting = setting
        self.held = 0
        self.refusals = 0
        self._granted: int | None = None
        """While state is read: how much growth was allowed since that began."""
        self._limit = limit
        self._monotonic = monotonic
        self._notes = LogThrottle(NOTES_INTERVAL_S, 1)

    @classmethod
    def unlimited(cls) -> "Budget":
        """One that refuses nothing, for state outside a broker."""
        return cls("", lambda: sys.maxsize, lambda: 0.0)

    @property
    def limit(self) -> int:
        """The value of the setting."""
        return self._limit()

    def has_room(self, amount: int, what: str, *, new: bool = False) -> bool:
        """Whether state may grow by `amount`; a refusal is counted, and logged once a minute with `what` it is about.

        `new`: something that does not belong to state that is there; a tenth of the limit is not for that.
        """
        if amount <= 0:
            return True
        limit = self._limit()
        if self._granted is not None:
            if self._granted + amount <= limit // RESERVED:
                self._granted += amount
                return True
        elif self.held + amount <= (limit - limit // RESERVED if new else limit):
            return True
        self.refusals += 1
        if self._notes.due(self.setting, self._monotonic()):
            _LOG.warning(
                "bound reached, refusing more: setting=%s limit=%d held=%d wanted=%d refused_so_far=%d first=%s",
                self.setting, limit, self.held, amount, self.refusals, what,
            )  # fmt: skip
        return False

    def reading(self, under_way: bool) -> None:
        """State is being read back from disk, or no longer."""
        if not under_way:
            self._granted = None
        elif self._granted is None:
            self._granted = 0

    def is_exceeded(self, factor: int = 1) -> bool:
        """Whether `factor` times the limit, and what may have grown beside the reading, is less than what is held."""
        limit = self._limit()
        return self.held > factor * limit + limit // RESERVED


class Account:
    """What one owner holds of a budget. Invariant: the budget's `held` is the sum over its open accounts."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: Budget) -> None:
        self._budget: Budget | None = budget
        self.held = 0

    def add(self, amount: int) -> None:
        """The owner holds `amount` more; less if it is negative. Without effect once closed."""
        if self._budget is not None:
            self.held += amount
            self._budget.held += amount

    def has_room(self, amount: int, what: str, *, new: bool = False) -> bool:
        """As `Budget.has_room`; True once closed."""
        return self._budget is None or self._budget.has_room(amount, what, new=new)

    def close(self) -> None:
        """Release everything: the owner no longer exists."""
        if self._budget is not None:
            self._budget.held -= self.held
            self._budget, self.held = None, 0


class StateBudgets:
    """The budgets of a broker, by the settings that bound them."""

    __slots__ = ("_budgets", "_config", "_monotonic")

    def __init__(self, config: "BrokerConfig", monotonic: Callable[[], float]) -> None:
        self._config = config
        self._monotonic = monotonic
        self._budgets: dict[str, Budget] = {}

    def of(self, setting: str) -> Budget:
        """The budget that the setting of this name bounds; made when first asked for."""
        budget = self._budgets.get(setting)
        if budget is None:
            budget = self._budgets[setting] = Budget(setting, lambda: self._config.int(setting), self._monotonic)
        return budget

    def __iter__(self) -> Iterator[Budget]:
        """Those that were asked for."""
        return iter(list(self._budgets.values()))
