"""Arguments of coordinated streams that cannot be meant are refused before anything is connected."""

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from moldau.client import create_coordinated_streams
from moldau.client.coordinated.streams import consumer_id
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import Exists, check_paths


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": {}}, "each topic needs at least one stream"),
        ({"topics": {"t": 0}}, "each topic needs at least one stream"),
        ({"group_id": "a/b"}, "group id 'a/b' cannot be the name of a node"),
        ({"zookeeper_connect": None}, "one of zookeeper_connect and metadata_store_file"),
        ({"metadata_store_file": "/f"}, "one of zookeeper_connect and metadata_store_file"),
        ({"zookeeper_connect": "host:port"}, "host:port is not HOST:PORT"),
        ({"auto_offset_reset": "error"}, "auto_offset_reset is one of smallest, largest, earliest, latest, not 'error'"),
        ({"offsets_storage": "brokers"}, "offsets_storage is 'zookeeper' or 'kafka', not 'brokers'"),
        ({"dual_commit": True}, "dual_commit needs offsets_storage='kafka'"),
        ({"session_timeout_ms": 0}, "are above 0"),
        ({"bootstrap_servers": "nowhere"}, "'nowhere' has no port"),
        ({"settings": {"group.id": "g"}}, "setting group.id is set by the argument group_id"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    given = {"topics": "t", "group_id": "g", "zookeeper_connect": "127.0.0.1:9"} | options
    with pytest.raises(ValueError, match=re.escape(message)):
        create_coordinated_streams(**given)


def test_a_file_that_no_broker_has_created(tmp_path: Path) -> None:
    path = tmp_path / "metadata"
    with pytest.raises(CoordinationError, match=f"metadata_store_file: {path}: no such file"):
        create_coordinated_streams("t", group_id="g", metadata_store_file=str(path))
    assert not path.exists()


def test_ids_are_as_of_kafka_08_and_unique() -> None:
    first, second = consumer_id("g"), consumer_id("g")
    assert re.fullmatch(rf"g_{re.escape(socket.gethostname())}-\d{{13}}-[0-9a-f]{{8}}", first)
    assert first != second
    check_paths(Exists(f"/consumers/g/ids/{first}"))
