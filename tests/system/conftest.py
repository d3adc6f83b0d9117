"""What the tests of whole processes share."""

from collections.abc import Iterator

import pytest

from moldau.testing.broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with a schema registry, for the tests of one module."""
    with Broker(registry=True) as running:
        yield running
