"""The epoch of each producer with a transactional id, by producer id: it distinguishes a producer that was replaced from its successor
where a partition has evicted both.
"""

from typing import TYPE_CHECKING

from moldau.broker.transactions.transaction import NO_EPOCH

if TYPE_CHECKING:
    from moldau.broker.transactions.machine import Machine


class ProducerEpochs:
    """Invariant: each machine that was noted and not removed is found by the producer id of its `current`."""

    __slots__ = ("_machines",)

    def __init__(self) -> None:
        self._machines: dict[int, Machine] = {}

    def note(self, machine: "Machine") -> None:
        """The machine is new, or has taken a step."""
        current = machine.current
        if current.previous_producer_id != current.producer_id:
            self._machines.pop(current.previous_producer_id, None)
        self._machines[current.producer_id] = machine

    def forget(self, machine: "Machine") -> None:
        """Its id is not coordinated here any more."""
        if self._machines.get(machine.current.producer_id) is machine:
            del self._machines[machine.current.producer_id]

    def of(self, producer_id: int) -> int | None:
        """The epoch that the producer was given last; None for one without a transactional id."""
        machine = self._machines.get(producer_id)
        return None if machine is None or machine.current.epoch == NO_EPOCH else machine.current.epoch
