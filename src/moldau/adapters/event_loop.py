"""Which event loop runs the broker: uvloop where it is installed, else asyncio's own."""

import asyncio
import importlib.util
import os


def uvloop_installed() -> bool:
    """Whether uvloop can be imported."""
    return importlib.util.find_spec("uvloop") is not None


def new_event_loop(name: str = "") -> asyncio.AbstractEventLoop:
    """A new loop, neither running nor set as the thread's.

    `name` is ``asyncio``, ``uvloop`` or ``auto``; empty takes the variable ``MOLDAU_LOOP``, else ``auto``. ValueError for another name,
    ImportError for uvloop where it is missing.
    """
    name = name or os.environ.get("MOLDAU_LOOP", "auto")
    if name not in ("asyncio", "auto", "uvloop"):
        raise ValueError(f"event loop {name!r}: neither asyncio nor uvloop nor auto")
    if name == "uvloop" or (name == "auto" and uvloop_installed()):
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.SelectorEventLoop()
