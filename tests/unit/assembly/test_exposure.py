"""Whoever listens beyond loopback is told so in one loud line; on loopback nothing is said."""

import logging

import pytest

from moldau.assembly.exposure import is_loopback, warn_if_exposed


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "::ffff:127.0.0.1"])
def test_loopback_says_nothing(host: str, caplog: pytest.LogCaptureFixture) -> None:
    assert is_loopback(host)
    warn_if_exposed("broker", [(host, 9092)], "")
    assert not caplog.messages


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.7", "192.0.2.1", "fe80::1", "broker.example", "128.0.0.1"])
def test_anything_else_says_where_what_and_what_to_do(host: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_if_exposed("broker", [("127.0.0.1", 9092), (host, 9093)], "set listeners=...")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    shown = f"[{host}]:9093" if ":" in host else f"{host or '0.0.0.0'}:9093"
    assert f"addresses={shown}; anyone who reaches it may read, write and delete everything" in caplog.messages[0]
    assert caplog.messages[0].endswith("or set listeners=...")
