"""Samples for a monitoring system, as values: what collecting makes and an exporter renders; and those of requests and of topics' traffic.

A sample is a plain tuple of what the garbage collector need not look at. With an object for each, a scrape of thousands of partitions would
bring about a full collection, which stops the broker for longer than all else that a scrape does.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Literal, NamedTuple

from moldau.model.errors import ErrorCode
from moldau.model.steps import Pause
from moldau.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from moldau.broker.metrics.counters import Counters, TimeDigest

Sample = tuple[str, tuple[str, ...], float]
"""What follows the family's name (``_total`` for a counter, ``_sum``, ``_count`` in a summary), values of the first labels, the number."""


class Family(NamedTuple):
    """The samples of one name."""

    name: str
    kind: Literal["counter", "gauge", "summary"]
    help: str
    labels: tuple[str, ...]
    samples: list[Sample]

    def add(self, value: float, *labels: str) -> None:
        """Add a counter's or a gauge's sample, with the values of its labels."""
        self.samples.append(("_total" if self.kind == "counter" else "", labels, value))


def counter(name: str, text: str, *labels: str) -> Family:
    """A number that only grows while the process lives."""
    return Family(name, "counter", text, labels, [])


def gauge(name: str, text: str, *labels: str) -> Family:
    """A number that goes up and down."""
    return Family(name, "gauge", text, labels, [])


def summary(name: str, text: str, *labels: str) -> Family:
    """Quantiles, with sum and count."""
    return Family(name, "summary", text, labels, [])


QUANTILES = (0.5, 0.95, 0.99, 0.999)
TOPICS_AT_ONCE = 500
_US_PER_MS = 1000
_REQUESTS = "kafka_network_requestmetrics_"
_TOPICS = "kafka_server_brokertopicmetrics_"


def request_name(api_key: ApiKey) -> str:
    """The name of an API as Kafka's metrics have it: ``ListOffsets``."""
    return api_key.name.title().replace("_", "")


def request_families(counters: "Counters", now_s: float) -> list[Family]:
    """Requests by API. `now_s`: a monotonic time in seconds."""
    requests = counter(f"{_REQUESTS}requests", "Requests answered, by API.", "request")
    errors = counter(f"{_REQUESTS}errors", "Error codes in responses, by API; a response may have several.", "request", "error")
    queue = summary(f"{_REQUESTS}requestqueuetimems", "Milliseconds from receiving a request to handling it.", "request", "quantile")
    total = summary(
        f"{_REQUESTS}totaltimems",
        "Milliseconds from receiving a request to its answer, with waiting for records.",
        "request",
        "quantile",
    )
    for api_key, each in sorted(counters.apis.items()):
        if not each.requests:
            continue
        name = request_name(ApiKey(api_key))
        requests.add(each.requests, name)
        for code, count in sorted(each.errors.items()):
            errors.add(count, name, ErrorCode(code).name)
        _add_digest(queue, name, each.queue, now_s)
        _add_digest(total, name, each.total, now_s)
    return [requests, errors, queue, total]


def topic_families(counters: "Counters") -> Generator[Pause, None, list[Family]]:
    """Traffic by topic, in steps."""
    messages_in = counter(f"{_TOPICS}messagesin", "Records appended, control records included.", "topic")
    bytes_in = counter(f"{_TOPICS}bytesin", "Bytes of batches appended.", "topic")
    bytes_out = counter(f"{_TOPICS}bytesout", "Bytes of batches fetched.", "topic")
    failed_produces = counter(f"{_TOPICS}failedproducerequests", "Partitions of Produce requests answered with an error.", "topic")
    failed_fetches = counter(f"{_TOPICS}failedfetchrequests", "Partitions of Fetch requests answered with an error.", "topic")
    for number, (name, traffic) in enumerate(list(counters.topics.items())):
        messages_in.add(traffic.messages_in, name)
        bytes_in.add(traffic.bytes_in, name)
        bytes_out.add(traffic.bytes_out, name)
        failed_produces.add(traffic.failed_produces, name)
        failed_fetches.add(traffic.failed_fetches, name)
        if number % TOPICS_AT_ONCE == 0:
            yield None
    return [messages_in, bytes_in, bytes_out, failed_produces, failed_fetches]


def _add_digest(family: Family, request: str, digest: "TimeDigest", now_s: float) -> None:
    quantiles = digest.quantiles(QUANTILES, now_s)
    if quantiles is not None:
        for share, us in zip(QUANTILES, quantiles, strict=True):
            family.samples.append(("", (request, str(share)), us / _US_PER_MS))
    family.samples.append(("_sum", (request,), digest.sum_us / _US_PER_MS))
    family.samples.append(("_count", (request,), digest.count))
