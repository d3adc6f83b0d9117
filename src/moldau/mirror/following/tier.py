"""The tier of a mirror in the audit: an auditor of its topics in the target, in the process of the mirror that has the rest follow.

A tier has one auditor. Where the process changes, the new auditor takes over the tier, and continues where the counts of the last one end.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from moldau.broker.metrics.families import Family

CHECK_S = 0.5


class TierAuditor(Protocol):
    """An auditor in threads of its own. Its methods may wait for seconds."""

    def start(self, bootstrap: str) -> None:
        """Begin to count a cluster."""

    def stop(self) -> None:
        """Publish what is counted, and end; harmless at any time."""

    def families(self) -> "list[Family]":
        """For the page of metrics."""


async def keep_tier(auditor: TierAuditor, bootstrap: str, is_first: Callable[[], bool]) -> None:
    """Have it count while this process is the first of its mirror, until this is cancelled."""
    loop = asyncio.get_running_loop()
    is_running = False
    try:
        while True:
            if is_first() != is_running:
                is_running = not is_running
                if is_running:
                    await loop.run_in_executor(None, auditor.start, bootstrap)
                else:
                    await loop.run_in_executor(None, auditor.stop)
            await asyncio.sleep(CHECK_S)
    finally:
        await loop.run_in_executor(None, auditor.stop)
