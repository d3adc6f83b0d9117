"""What simulated clients do: coroutines that begin operations while the budget lasts, finish them, and end by themselves."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.workloads.reading import read
from moldau.testing.simulation.workloads.transacting import transact
from moldau.testing.simulation.workloads.writing import write, write_carelessly

Workload = Callable[[ClientContext], Coroutine[Any, Any, None]]

WORKLOADS: Mapping[str, Workload] = {"read": read, "transact": transact, "write": write, "write_carelessly": write_carelessly}
TRANSACTIONAL = ("transact",)
"""Those that rely on the coordinator of transactions."""
