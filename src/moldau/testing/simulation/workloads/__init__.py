"""What simulated clients do: coroutines that begin operations while the budget lasts, finish them, and end by themselves."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.workloads.administrating import administrate, look
from moldau.testing.simulation.workloads.joining import commit_plainly, join
from moldau.testing.simulation.workloads.keeping import compact, delete
from moldau.testing.simulation.workloads.moving_logs import move_logs
from moldau.testing.simulation.workloads.plain import read, write, write_carelessly
from moldau.testing.simulation.workloads.rearranging import rearrange
from moldau.testing.simulation.workloads.transactional import copy, succeed, transact

Workload = Callable[[ClientContext], Coroutine[Any, Any, None]]

WORKLOADS: Mapping[str, Workload] = {
    "administrate": administrate,
    "commit_plainly": commit_plainly,
    "compact": compact,
    "copy": copy,
    "delete": delete,
    "join": join,
    "look": look,
    "move_logs": move_logs,
    "read": read,
    "rearrange": rearrange,
    "succeed": succeed,
    "transact": transact,
    "write": write,
    "write_carelessly": write_carelessly,
}
OF_A_CLUSTER = ("rearrange",)
"""Those that need several brokers."""
OF_TWO_DIRECTORIES = ("move_logs",)
"""Those that need several log directories. They are drawn apart from the others."""
TRANSACTIONAL = ("copy", "succeed", "transact")
"""Those that rely on the coordinator of transactions."""
