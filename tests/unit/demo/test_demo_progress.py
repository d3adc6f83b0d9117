"""What the demonstration shows while it runs."""

import os
import sys
from pathlib import Path

import pytest

from moldau.cli.demo_view import progress_view
from moldau.lake.session import _errors_to


def test_steps_are_shown_while_spark_starts_beside_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has started, standard error of the process is Spark's log."""
    log = tmp_path / "spark.log"
    monkeypatch.setattr(sys, "stderr", os.fdopen(2, "w", closefd=False))
    with progress_view(quiet=False) as progress, _errors_to(str(log)):
        progress.end("start brokers", 0, 1.0)
        progress.end("publish", 1_000, 2.0)
    assert capfd.readouterr().err.splitlines() == ["start brokers: 1.0 s", "publish: 1,000 in 2.0 s, 500/s"]
    assert log.read_text() == ""
