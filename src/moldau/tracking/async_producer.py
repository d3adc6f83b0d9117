"""A producer of tracked events for asyncio, with the names of `moldau.tracking.producer.TrackerProducer`.

    async with AsyncTrackerProducer(service="shop", bootstrap_servers="localhost:9092", registry="http://localhost:8081") as tracker:
        delivery = await tracker.track(OrderPlaced(order=17))   # waits only for room in the queue, and the first time for the brokers
        await delivery

What may wait for brokers or the registry runs in threads.
"""

from datetime import datetime
from types import TracebackType
from typing import Any, Self

from moldau.client.asynchronous import in_thread
from moldau.client.delivery import Delivery
from moldau.tracking.producer import TrackerProducer
from moldau.tracking.schemas.event_schema import EventSchema


class AsyncTrackerProducer:
    """Publishes tracked events; arguments as for `TrackerProducer`. One event loop uses it."""

    def __init__(self, **options: Any) -> None:
        self._tracker = TrackerProducer(**options)
        self.declare = self._tracker.declare

    async def track(
        self,
        event: Any,
        time: datetime | int | None = None,
        topic: str | None = None,
        key: bytes | str | None = None,
        *,
        schema: EventSchema | None = None,
    ) -> Delivery:
        """Publish an event; as `TrackerProducer.track`. ``await`` what it gives for the outcome."""
        tracker = self._tracker
        if tracker.asks_before_tracking(event, topic, schema):
            wanted = await in_thread(lambda: tracker.prepare(event, time, topic, key, schema))
        else:
            wanted = tracker.prepare(event, time, topic, key, schema)
        try:
            while not tracker.inner.offer(wanted):
                await in_thread(tracker.inner.wait_for_room)
        except BaseException:
            tracker.abandon(wanted)
            raise
        return wanted.delivery

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every event so far has ended. SendError, TimeoutError."""
        await in_thread(lambda: self._tracker.flush(timeout))

    async def publish_counts(self) -> None:
        """Publish now what was counted since the last time."""
        await in_thread(self._tracker.publish_counts)

    @property
    def instance(self) -> str:
        """Whom the guids of its events name now."""
        return self._tracker.instance

    def statistics(self) -> dict[str, int]:
        """As `TrackerProducer.statistics`."""
        return self._tracker.statistics()

    async def close(self, timeout: float | None = None) -> None:
        """Flush, publish the counts, close them, and close the connections."""
        await in_thread(lambda: self._tracker.close(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await in_thread(lambda: self._tracker.__exit__(kind, error, trace))
