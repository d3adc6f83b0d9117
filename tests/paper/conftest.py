"""One broker for all claims that need no settings of their own, and a topic for each.

It ends with the last claim: others replace functions of the system's, and count who calls them.
"""

from collections.abc import Iterator

import pytest

from moldau.client.connection import BrokerConnection
from moldau.testing.broker import Broker
from support.paper import connect


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of one partition."""
    return broker.create_topic(broker.unique_topic(request.node.name))


@pytest.fixture
def connection(broker: Broker) -> Iterator[BrokerConnection]:
    with connect(broker) as opened:
        yield opened
