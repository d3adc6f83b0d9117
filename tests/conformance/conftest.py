"""What the tests with other people's programs share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from support.kafka_tools import DUMPS, KafkaTools, Printed


@pytest.fixture(scope="session")
def tools_of() -> Iterator[Callable[[str], KafkaTools]]:
    """The console tools of a version of Kafka, in one process for all tests."""
    with ExitStack() as running:
        yield cache(lambda version: running.enter_context(KafkaTools(version)))


@pytest.fixture(scope="session")
def kafka_tools(tools_of: Callable[[str], KafkaTools]) -> KafkaTools:
    """Those of Kafka 4.3."""
    return tools_of("4.3.0")


@pytest.fixture(scope="session")
def kafka_dump(tools_of: Callable[[str], KafkaTools]) -> Callable[..., Printed]:
    """DumpLogSegments of a version, with its arguments."""
    return lambda version, *arguments: tools_of(version)(DUMPS[version], *arguments)
