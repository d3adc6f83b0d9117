"""What takes addresses of brokers calls them as Kafka's clients for Python do, in all of the package."""

import inspect
from collections.abc import Callable

import pytest

from moldau.audit.auditor import Auditor
from moldau.audit.watermark import completion_watermark
from moldau.client import AsyncConsumer, AsyncProducer, Consumer, Producer, create_coordinated_streams, create_message_streams
from moldau.client.cluster import Cluster
from moldau.lake import LoadJobs
from moldau.lake.loading.job import LoadJob
from moldau.lake.reports import raw_report, run_report
from moldau.registry.server import RegistryServer
from moldau.tracking import TrackedConsumer, TrackerProducer, WorkQueue
from moldau.tracking.topics import Category

TAKES_BROKERS = (
    *(Producer, Consumer, AsyncProducer, AsyncConsumer, Cluster, create_message_streams, create_coordinated_streams),
    *(TrackerProducer, TrackedConsumer, WorkQueue, Category.ensure),
    *(Auditor, completion_watermark, RegistryServer, LoadJob, LoadJobs, run_report, raw_report),
)


@pytest.mark.parametrize("taking", TAKES_BROKERS, ids=lambda each: each.__qualname__)
def test_the_parameter_is_bootstrap_servers_and_no_other(taking: Callable[..., object]) -> None:
    assert [name for name in inspect.signature(taking).parameters if "bootstrap" in name] == ["bootstrap_servers"]
