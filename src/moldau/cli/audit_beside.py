"""``moldau serve --audit``, and the tier of a mirror: an auditor in the process of a broker or of a mirror.

It counts as ``moldau audit run`` does, over connections of its own and in threads of its own, so the loop of the process does nothing for
it. What ends it does not end the process: it is logged, and on the page of metrics.
"""

import logging
import threading
from typing import TYPE_CHECKING

from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.audit.metrics import auditor_families
from moldau.cli.audit_run import log_once
from moldau.client.failures import FencedError

if TYPE_CHECKING:
    import re

    from moldau.broker.metrics.families import Family

log = logging.getLogger(__name__)


class AuditorBeside:
    """Of one tier. `start` when the broker listens, `stop` before it stops."""

    def __init__(self, tier: str, topics: "re.Pattern[str] | None" = None, *, beside: str = "broker") -> None:
        """`topics`: as in `AuditorOptions`. `beside`: what its process is otherwise."""
        self._tier = tier
        self._topics = topics
        self._beside = beside
        self._auditor: Auditor | None = None
        self._thread: threading.Thread | None = None

    def start(self, bootstrap: str) -> None:
        """Begin to count."""
        self._auditor = Auditor(bootstrap, AuditorOptions(self._tier, self._topics))
        log_once(self._auditor)
        self._thread = threading.Thread(target=self._run, args=(self._auditor,), name="moldau-audit", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Publish what is counted, and end; within seconds, also where brokers do not answer."""
        if self._auditor is not None and self._thread is not None:
            self._auditor.stop()
            self._thread.join()

    def families(self) -> "list[Family]":
        """For the page of metrics; nothing before the start."""
        if self._auditor is None or self._thread is None:
            return []
        return auditor_families(self._auditor, running=self._thread.is_alive())

    def _run(self, auditor: Auditor) -> None:
        try:
            auditor.run()
        except FencedError as error:
            log.error(
                "auditor ended, the %s continues: tier=%s reason=another auditor of this tier has taken over (%s)",
                self._beside,
                self._tier,
                error.name,
            )
        except Exception as error:
            log.error("auditor ended, the %s continues: tier=%s reason=%s", self._beside, self._tier, error, exc_info=True)
