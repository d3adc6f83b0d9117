"""A client with coroutines finds who leads and who controls the cluster, whichever broker it knows, also after that one has died."""

from dataclasses import replace

import pytest

from moldau.client.partition_requests import LATEST
from moldau.mirror.reading import list_offset
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.brokers import Brokers
from simulation.small_cluster import CONTROLLER, FOLLOWER, LEADER, T0, Cluster

pytestmark = pytest.mark.system


def test_a_client_with_one_address_finds_the_controller() -> None:
    async def scenario(cluster: Cluster) -> None:
        for broker_id in (CONTROLLER, FOLLOWER):
            context = cluster.sim.client()
            brokers = Brokers(replace(context, servers=(context.servers[broker_id - 1],)))
            request = CreateTopicsRequest([CreatableTopic(f"u{broker_id}", 1, 1)], 10_000)
            response = await (await brokers.controller()).send(ApiKey.CREATE_TOPICS, request, timeout_s=10.0)
            assert response.topics[0].error_code == 0

    Cluster().run(scenario)


def test_an_offset_is_asked_of_the_next_leader_once_the_first_one_is_dead() -> None:
    async def scenario(cluster: Cluster) -> None:
        brokers = Brokers(cluster.sim.client())
        await cluster.write(b"a")
        assert await list_offset(brokers, T0, LATEST) == 1
        cluster.kill(LEADER)
        before = cluster.sim.schedule.now
        assert await list_offset(brokers, T0, LATEST) == 1
        assert cluster.sim.schedule.now - before < 20

    Cluster().run(scenario)
