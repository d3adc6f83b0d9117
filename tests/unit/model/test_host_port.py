"""A list of brokers is read as people write it, and what cannot be connected to is refused with a reason."""

import pytest

from moldau.model.host_port import Address, parse_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        (" a:1 , b:65535,", [Address("a", 1), Address("b", 65535)]),
        ("[::1]:9092", [Address("::1", 9092)]),
    ],
)
def test_lists_that_can_be_read(text: str, addresses: list[Address]) -> None:
    assert parse_addresses(text) == addresses
    assert parse_addresses(",".join(map(str, addresses))) == addresses


@pytest.mark.parametrize("text", ["", ",", "host", "host:", "host:x", "host:0", ":9092", "host:65536", "::1:9092", "[::1:9092", "a:1;b:2"])
def test_lists_that_cannot(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_addresses(text)
