"""The states of a group, and the moves between them.

                   a member joins                         every member has joined, or time is over
         Empty ───────────────────────► PreparingRebalance ───────────────────────► CompletingRebalance
           ▲  ▲                           │      ▲      ▲                                 │     │
           │  └───────────────────────────┘      │      │   somebody joins, leaves,       │     │ the leader's
           │    nobody is left                   │      └── dies or does not sync ────────┘     │ assignment
           │                                     │                                              │ is stored
        restored without members                 └─────────── the same, or the ────── Stable ◄──┘
                                                              leader joins again        ▲
                                                                                   restored with members

Any of them moves to Dead: the group was deleted, or its partition of the offsets topic is led elsewhere from now on.
"""

from enum import Enum


class State(Enum):
    """Where a group is; the values are the names that tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members join; who does is answered when all have."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation is formed; its leader works out who gets what."""
    STABLE = "Stable"
    DEAD = "Dead"


MOVES = {
    State.EMPTY: {State.PREPARING_REBALANCE, State.DEAD},
    State.PREPARING_REBALANCE: {State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD},
    State.COMPLETING_REBALANCE: {State.STABLE, State.PREPARING_REBALANCE, State.DEAD},
    State.STABLE: {State.PREPARING_REBALANCE, State.DEAD},
    State.DEAD: set[State](),
}
