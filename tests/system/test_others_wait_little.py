"""A real server keeps a well-behaved client waiting for well below a second while another one asks for much."""

from pathlib import Path

import pytest

from moldau.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from support.server import ServerProcess
from support.stall import StallWatch
from support.wire import Wire

pytestmark = pytest.mark.system

TOPIC = 2
STALL_MAX_S = 2.0
"""Wide: without turns it would be several times that, and this machine may do other things."""


def test_while_topics_are_made_and_described(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(500)]
    with ServerProcess(tmp_path) as server:
        host, port = server.bootstrap.rsplit(":", 1)
        wire = Wire((host, int(port)))
        wire.socket.settimeout(120)
        with StallWatch((host, int(port))) as watch:
            made = wire.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names]), 7)
            described = wire.ask(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, None) for name in names]), 4)
        assert [topic.error_code for topic in made.topics] == [0] * 500
        assert all(result.configs for result in described.results)
        wire.close()
    assert watch.answers > 10
    assert watch.longest_s < STALL_MAX_S
