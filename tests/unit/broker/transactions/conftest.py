"""The runner of machines logs what an answer raises, and continues: here that fails the test."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_bug_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if "by a bug" in record.getMessage()] == []
