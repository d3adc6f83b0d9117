"""What work in the background had in its hands is freed when it has ended, by an error too: nothing waits for the garbage collector."""

import asyncio
import gc
import weakref

from moldau.adapters.threads import LoopBackground


class Large:
    """Stands for megabytes."""


def test_the_error_of_work_keeps_nothing_alive() -> None:
    seen: list[weakref.ref[Large]] = []

    def work() -> None:
        large = Large()
        seen.append(weakref.ref(large))
        raise ValueError("no")

    async def once() -> None:
        ended = asyncio.Event()
        background = LoopBackground(asyncio.get_running_loop())
        background.run(work, lambda _result, error: ended.set() if isinstance(error, ValueError) else None)
        await ended.wait()
        await asyncio.sleep(0)
        background.close()

    gc.disable()
    try:
        asyncio.run(once())
        assert [each() for each in seen] == [None]
    finally:
        gc.enable()
