"""What the audit says of a job's tables, into their properties: up to when each is complete."""

import logging
from collections.abc import Callable, Iterable, Mapping

from moldau.audit.forgetting import Watch
from moldau.audit.rules import Rules
from moldau.client.cluster import Cluster
from moldau.lake.loading.job import LoadJob
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import format_of
from moldau.lake.tables.watermark import set_watermark
from moldau.model.errors import MoldauError
from moldau.tracking.clock import now_ms

log = logging.getLogger(__name__)


class Watermarks:
    """Reads the audit topic once, and then what is new. `rules` are how tiers are compared, for a time in ms."""

    def __init__(self, bootstrap: str, rules: Callable[[int], Rules] | None = None) -> None:
        self._bootstrap = bootstrap
        self._rules = rules or (lambda now_ms: Rules(now_ms=now_ms))
        self._watch = Watch()

    def update(self, jobs: Iterable[LoadJob]) -> Mapping[str, int]:
        """Set the property of each table of which the audit can say something; the watermarks by topic, in ms.

        An audit that cannot be read changes nothing: the log says why.
        """
        jobs = [job for job in jobs if job.tier is not None]
        if not jobs:
            return {}
        try:
            with Cluster(self._bootstrap, client_id="moldau-load") as cluster:
                told = self._watch.look(cluster, self._rules(now_ms())).watermarks
        except MoldauError as error:
            log.warning("the audit cannot be read, so no completion watermark moves: %s", error)
            return {}
        known: dict[str, int] = {}
        for job in jobs:
            assert job.tier is not None
            time_ms = told.get((job.topic, job.tier))
            tables = format_of(job.table)
            if time_ms is None or tables is None:
                continue
            try:
                set_watermark(tables, job.table, time_ms)
                known[job.topic] = time_ms
            except TableError as error:
                log.warning("%s: the completion watermark was not set: %s", job.table, error)
        return known
