"""What the tests with other people's programs share."""

from collections.abc import Iterator

import pytest

from support.kafka_tools import KafkaTools


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    """The console tools of Kafka 4.3, in one process for all tests."""
    with KafkaTools("4.3.0") as tools:
        yield tools
