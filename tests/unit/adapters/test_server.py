"""Binding to names and ports, and a log that does not fill up."""

import logging
import socket

import pytest

from moldau.adapters.asyncio_server import LogLimit
from moldau.adapters.binding import bind


def test_port_0_is_the_same_port_on_all_addresses() -> None:
    sockets = bind("localhost", 0)
    try:
        ports = {bound.getsockname()[1] for bound in sockets}
        assert len(ports) == 1
        assert ports != {0}
        assert socket.AF_INET in {bound.family for bound in sockets}
    finally:
        for bound in sockets:
            bound.close()


def test_a_taken_port_leaves_nothing_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1])


def test_an_empty_host_is_every_interface() -> None:
    (bound,) = bind("", 0)
    assert bound.getsockname()[0] == "0.0.0.0"
    bound.close()


def test_one_line_a_second_with_the_number_left_out(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogLimit(logging.getLogger("test"))
    for tenth in range(25):
        limit.warning(tenth / 10, "refused: peer=%s", "somebody")
    assert [record.getMessage() for record in caplog.records] == [
        "refused: peer=somebody left_out=0",
        "refused: peer=somebody left_out=9",
        "refused: peer=somebody left_out=9",
    ]
