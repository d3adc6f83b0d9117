"""Which clients a run has: some of the workloads, drawn from its seed."""

from collections.abc import Mapping

from moldau.testing.simulation.options import Options, draw_options, generator
from moldau.testing.simulation.workloads import CREATING, TRANSACTIONAL, WORKLOADS, Workload

CLIENTS_MIN, CLIENTS_MAX = 2, 8


def draw_clients(seed: int, workloads: Mapping[str, Workload] = WORKLOADS) -> list[str]:
    """Names of workloads, some of them several times."""
    random = generator(seed, "clients")
    kinds = random.sample(list(workloads), random.randint(1, min(4, len(workloads))))
    return sorted(random.choice(kinds) for _ in range(random.randint(CLIENTS_MIN, CLIENTS_MAX)))


def clients_of(options: Options) -> list[tuple[str, Workload]]:
    """The workloads that the options name."""
    return [(name, WORKLOADS[name]) for name in options.clients]


def options_of(seed: int) -> Options:
    """Everything that a seed draws before its run."""
    options = draw_options(seed)
    options.clients = draw_clients(seed)
    settle(options)
    return options


def settle(options: Options) -> None:
    """Have transactional clients meet power cuts only where everything is synced before it is acknowledged.

    A coordinator that has lost the begin of a transaction never ends it: its records hide all that follow, and nothing can be claimed.
    Topics that are created while the disk is full stay offline, until an operator accepts the loss of folders that were never made.
    """
    if any(name in CREATING for name in options.clients):
        options.faults.pop("disk_full", None)
    if "power_cut" in options.faults and any(name in TRANSACTIONAL for name in options.clients):
        options.settings["log.flush.interval.messages"] = 1
