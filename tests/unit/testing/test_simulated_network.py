"""Connections of simulated hosts end as TCP's do."""

from random import Random

import pytest

from moldau.ports.transport import Receiver, Transport
from moldau.testing.simulation.network import NetworkOptions, Party, SimulatedNetwork, run_directly
from moldau.testing.simulation.schedule import ActorGroup, Schedule

PORT = 9092


class Ear(Receiver):
    """One end of a connection."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.lost: list[Exception | None] = []

    def get_buffer(self, _size_hint: int) -> memoryview:
        return memoryview(bytearray(100))

    def buffer_updated(self, count: int) -> None:
        """What comes is not looked at."""

    def queue_drained(self) -> None:
        """Little is sent."""

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


@pytest.mark.parametrize("sent_meanwhile", [True, False])
def test_bytes_for_a_host_that_lost_its_power_are_answered_with_a_reset_once_it_has_it_again(sent_meanwhile: bool) -> None:
    schedule = Schedule(Random(1))
    network, process = SimulatedNetwork(schedule, Random(2), NetworkOptions()), ActorGroup("broker")
    network.listen(Party("server", process, run_directly), PORT, Ear)
    ears: list[Ear] = []

    def accept(transport: Transport) -> Ear:
        ears.append(Ear(transport))
        return ears[-1]

    def settle() -> None:
        while schedule.step(schedule.now + 10):
            pass

    network.client("client").connect("server", PORT, accept, lambda error: pytest.fail(str(error)))
    settle()
    (ear,) = ears
    schedule.end(process)
    network.process_ended("server", silently=True)
    settle()
    if sent_meanwhile:
        ear.transport.send([b"request"])
        settle()
    assert ear.lost == [], "it knows nothing of it"
    network.host_started("server")
    settle()
    if not sent_meanwhile:
        assert ear.lost == []
        ear.transport.send([b"request"])
        settle()
    assert [type(error) for error in ear.lost] == [ConnectionResetError]
