"""An administrator who moves logs between the directories of brokers (KIP-113), back and forth."""

from contextlib import suppress
from random import Random

from moldau.model.errors import PeerError, WorldError
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.workloads.recording import pause
from moldau.wire.connection import Address

PAUSES = 10
"""Between two of its operations, so that logs arrive."""
AT_ONCE = (1, 1, 3)
"""How many logs it moves at a time."""
SHORTENED = "compacted-", "deleted-"
"""Topics of those names lose records while their logs move, and are preferred."""


async def move_logs(context: ClientContext) -> None:
    """Move logs of whatever topics a broker has. A move that is refused is none: a directory has failed, a replica is offline."""
    admin, random = SimulatedAdmin(context), context.random
    while context.budget.take():
        with suppress(PeerError, WorldError):  # the broker is away, or refuses
            await _move_some(admin, random.choice(context.servers), random)
        for _ in range(random.randint(1, PAUSES)):
            await pause(context)
    admin.close()


async def _move_some(admin: SimulatedAdmin, broker: Address, random: Random) -> None:
    """Move some logs to where they are not; some of them, in the next request, to a directory that may be the one that they are in."""
    found = await admin.log_dirs(broker)
    places = [(partition, path) for path, partitions in found.items() for partition in partitions]
    shortened = [place for place in places if place[0].topic.startswith(SHORTENED)]
    if shortened and random.random() < 0.5:
        places = shortened
    for partition, path in random.sample(places, min(len(places), random.choice(AT_ONCE))):
        others = [other for other in found if other != path]
        if others:
            await admin.move_log(broker, partition, random.choice(others))
            if random.random() < 0.3:
                await admin.move_log(broker, partition, random.choice(list(found)))
