"""A setting that changes nothing in this version is named once, at the start: whoever set it expects something of it."""

import asyncio
from pathlib import Path

import pytest

from moldau.assembly.running import RunningBroker
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        (["num.io.threads=16", "log.preallocate=true"], ["settings without effect in this version: names=log.preallocate,num.io.threads"]),
        (["num.io.threads=8", "num.partitions=3"], []),
    ],
)
def test_they_are_named_in_one_line(settings: list[str], lines: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    static = read_static(settings=[*settings, "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}"])

    async def start_and_stop() -> None:
        running = RunningBroker(asyncio.get_running_loop(), BrokerConfig(static))
        await running.start()
        await running.stop()

    asyncio.run(start_and_stop())
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == lines
