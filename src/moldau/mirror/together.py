"""Coroutines that end together."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*acts: Coroutine[Any, Any, object]) -> None:
    """All at the same time. The first error; the others are cancelled then, and have ended, as when this is cancelled."""
    tasks = [asyncio.ensure_future(act) for act in acts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
