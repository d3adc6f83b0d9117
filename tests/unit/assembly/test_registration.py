"""A start registers an endpoint for every listener; that of other brokers comes first, and is `host` and `port` of the registration."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from moldau.assembly.running import RunningBroker
from moldau.cluster import znodes
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.ports.coordination import Data, GetData, Outcome


def registered(directory: Path, *settings: str) -> tuple[dict[str, Any], list[int], str | None]:
    """The node of a broker with listeners A, B and C, their ports, and what DescribeConfigs shows as advertised."""
    names = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT"
    static = read_static(settings=[names, *settings, f"log.dirs={directory}"])

    async def start_and_stop() -> tuple[dict[str, Any], list[int], str | None]:
        loop = asyncio.get_running_loop()
        running = RunningBroker(loop, BrokerConfig(static))
        await running.start()
        read: asyncio.Future[Outcome] = loop.create_future()
        running._tree.coordination.submit(GetData(znodes.broker(0)), read.set_result)
        found = await read
        assert isinstance(found, Data)
        node = json.loads(found.data)
        shown = running.config.settings("advertised.listeners")
        await running.stop()
        return node, [port for _, port in running.addresses], shown[0].text if shown else None

    return asyncio.run(start_and_stop())


def test_every_listener_is_registered_under_its_advertised_address_or_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "this.host")
    node, (a, b, c), _ = registered(
        tmp_path,
        "listeners=A://127.0.0.1:0,B://127.0.0.1:0,C://:0",
        "advertised.listeners=B://broker.example:19092",
        "inter.broker.listener.name=B",
    )
    assert (node["host"], node["port"]) == ("broker.example", 19092)
    assert node["endpoints"] == ["B://broker.example:19092", f"A://127.0.0.1:{a}", f"C://this.host:{c}"]
    assert node["listener_security_protocol_map"] == {"A": "PLAINTEXT", "B": "PLAINTEXT", "C": "PLAINTEXT"}
    assert len({a, b, c}) == 3


def test_what_is_advertised_by_default_is_shown_with_real_ports(tmp_path: Path) -> None:
    _, (a, b), shown = registered(tmp_path, "listeners=A://127.0.0.1:0,B://localhost:0")
    assert shown == f"A://127.0.0.1:{a},B://localhost:{b}"


def test_a_broker_that_others_may_join_is_in_the_rack_of_its_host_unless_it_is_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So replicas are on several hosts where there are several (`spread`)."""
    monkeypatch.setattr("socket.gethostname", lambda: "this.host")
    listener, shared = "listeners=A://127.0.0.1:0", f"metadata.store.file={tmp_path / 'cluster.sqlite'}"
    assert registered(tmp_path / "1", listener, shared)[0]["rack"] == "this.host"
    assert registered(tmp_path / "2", listener, shared, "broker.rack=zone-a")[0]["rack"] == "zone-a"
    assert "rack" not in registered(tmp_path / "3", listener)[0], "a broker alone"
