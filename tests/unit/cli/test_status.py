"""`moldau status` reads any page of Prometheus' text format, also that of Kafka's exporter."""

from moldau.cli.metrics_page import Page
from moldau.cli.status import _document

EXPORTER = """
kafka_server_brokertopicmetrics_messagesin_total 7.0
kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 5.0
kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.5"} NaN
kafka_network_requestmetrics_requests_total{request="Fetch"} 3.0
process_cpu_seconds_total +Inf
"""


def test_sums_over_all_topics_and_values_that_are_no_numbers_are_left_out() -> None:
    document = _document(Page(EXPORTER))
    assert document["topics"] == [{"topic": "t", "messages_in": 5, "bytes_in": 0, "bytes_out": 0, "log_bytes": 0}]
    assert document["requests"] == [{"request": "Fetch", "requests": 3, "errors": 0, "p50_ms": None, "p99_ms": None}]
    assert document["broker"]["cpu_seconds"] is None
