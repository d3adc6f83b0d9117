"""A service that starts before its brokers: its first event is refused with an error that may pass, and nothing of it is kept."""

import logging
from typing import Any

import pytest

from moldau.client.errors import UnreachableError
from moldau.client.librdkafka import RETRIED
from moldau.tracking import TrackerProducer

NOWHERE = "127.0.0.1:1"
SCHEMA = {"type": "record", "name": "Click", "fields": [{"name": "n", "type": "int"}]}


class Registry:
    def register(self, subject: str, text: str) -> int:
        return 1

    def lookup(self, subject: str, text: str) -> Any:
        raise AssertionError(subject)

    def schema(self, schema_id: int) -> Any:
        raise AssertionError(schema_id)

    def referenced(self, schema: Any) -> list[Any]:
        return []


@pytest.mark.parametrize("create_topics", [True, False])
def test_the_first_event_is_refused_each_time_and_no_log_line_promises_to_send_it(
    create_topics: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with TrackerProducer(service="shop", bootstrap_servers=NOWHERE, registry=Registry(), create_topics=create_topics) as tracker:
        tracker.declare(SCHEMA, topic="clicks")
        for _ in range(2):
            with pytest.raises(UnreachableError) as refused:
                tracker.track({"n": 1}, topic="clicks")
            assert refused.value.retriable
        found = tracker.statistics()  # `waiting` counts errors that the client library has not reported yet, too
        assert (found["failed"], found["audit_records"]) == (0, 0)
    assert all(text.endswith(RETRIED) for text in caplog.messages if " is away: " in text), "the connection, not the event"
