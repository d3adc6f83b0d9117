"""Has logs that move between directories arrive when the faults are over, and checks what the moves have left."""

from collections.abc import Collection, Iterator

from moldau.broker.replicas.directory_moves import RATE
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.process import Host
from moldau.testing.simulation.reader import copies_in, logs_on
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.waiting import NotConvergedError

MOVE_S = 120.0
UNLIMITED = 2**63 - 1


async def moved(simulation: Simulation, hosts: Collection[Host]) -> None:
    """Do what an operator does, have logs move as fast as they can; and wait until these hosts have no copies any more."""
    if RATE in simulation.options.settings:
        admin = SimulatedAdmin(simulation.client("operator"))
        await admin.configure_brokers({RATE: UNLIMITED})
        admin.close()
    until = simulation.schedule.now + MOVE_S
    while copies := list(_copies(hosts)):
        if simulation.schedule.now > until:
            raise NotConvergedError(f"copies of logs are left: {', '.join(copies)}")
        await simulation.sleep(1.0)


def check_directories(hosts: Collection[Host]) -> None:
    """Nothing moves any more: each replica is in one directory, and there is no copy. InvariantError."""
    for host in hosts:
        places: dict[str, str] = {}
        for log in logs_on(host.disk, host.directories):
            if places.setdefault(log.partition, log.path) != log.path:
                raise InvariantError(f"{host.name}: {log.partition} is in {places[log.partition]} and in {log.path}")
    for copy in _copies(hosts):
        raise InvariantError(f"copy left in {copy}")


def _copies(hosts: Collection[Host]) -> Iterator[str]:
    return (f"{host.name}:{path}" for host in hosts for directory in host.directories for path in copies_in(host.disk, directory))
