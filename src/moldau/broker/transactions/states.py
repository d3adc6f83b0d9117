"""The states of a transactional id, and the legal moves between them.

    (new id) ──> Empty ──add──> Ongoing ──commit──> PrepareCommit ──markers written──> CompleteCommit
                   │              │ ^                                                        │
                   │            add └─┘ ──abort──> PrepareAbort ──markers written──> CompleteAbort
                   │                                  ^                                      │
                   └──────── abort (version 2) ───────┴─────────── abort (version 2) ────────┤
                                                                                             │
                   Empty <────────────────── InitProducerId ─────────────────────────────────┤
                 Ongoing <───────────────────── add ─────────────────────────────────────────┘

Two more states are never stored. A transaction that is late, or whose producer is replaced by another, is in PrepareEpochFence until its
abort is stored as PrepareAbort. An id that has not been used for long is Dead until its tombstone is stored and it is forgotten.

The numbers and names are Kafka's: they stand in ``__transaction_state`` and in the answers of DescribeTransactions and ListTransactions.
"""

from enum import IntEnum


class State(IntEnum):
    """Where a transactional id stands. The numbers are on disk: do not change."""

    EMPTY = 0
    """A producer has been given its id and epoch; no transaction yet."""
    ONGOING = 1
    """At least one partition has been added."""
    PREPARE_COMMIT = 2
    """Decided: the markers that commit are being written."""
    PREPARE_ABORT = 3
    """Decided: the markers that abort are being written."""
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name as clients and tools know it."""
        return _LABELS[self]

    @property
    def is_decided(self) -> bool:
        """Whether the outcome stands, but not yet in every partition."""
        return self is State.PREPARE_COMMIT or self is State.PREPARE_ABORT

    @property
    def is_complete(self) -> bool:
        """Whether a transaction has ended, and none has begun since."""
        return self is State.COMPLETE_COMMIT or self is State.COMPLETE_ABORT

    @property
    def is_at_rest(self) -> bool:
        """Whether there is no transaction: the only states in which an id may expire, or be given to another producer at once."""
        return self is State.EMPTY or self.is_complete


_LABELS = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}
BY_LABEL = {label: state for state, label in _LABELS.items()}

MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE}),
    State.PREPARE_EPOCH_FENCE: frozenset({State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
}
"""Where each state may go. A new id begins in Empty."""
