"""What py4j and pyspark say about a Java that ends is shown where it ended by itself, and not where we ended it. Errors that are raised are
not logged as well.
"""

import logging
from collections.abc import Iterator

import pytest
from pyspark.logger import PySparkLogger

from moldau.lake.session import silence_accumulators, silence_py4j, silence_query_errors
from moldau.lake.spark_processes import SparkProcesses


@pytest.fixture
def processes() -> Iterator[SparkProcesses]:
    found = SparkProcesses(prefix="moldau-test-quiet-")
    yield found
    found.end()


def by_py4j(text: str, error: BaseException | None = None) -> logging.LogRecord:
    raised = None if error is None else (type(error), error, None)
    return logging.LogRecord("root", logging.ERROR, "/lib/py4j/java_gateway.py", 1059, text, (), raised)


def test_py4j_is_silent_once_we_end_java_and_others_are_not(processes: SparkProcesses) -> None:
    root, before = logging.getLogger(), logging.getLogger().filters[:]
    silence_py4j(processes)
    try:
        assert root.filter(by_py4j("Exception while sending command."))
        assert not root.filter(by_py4j("KeyboardInterrupt while sending command.", KeyboardInterrupt()))
        processes.end_soon()
        assert not root.filter(by_py4j("Exception while sending command."))
        assert root.filter(logging.LogRecord("root", logging.ERROR, "/lib/other.py", 1, "of others", (), None))
    finally:
        root.filters[:] = before


def test_the_server_of_accumulators_tells_of_errors_until_we_end_java(processes: SparkProcesses) -> None:
    class Server:
        def __init__(self) -> None:
            self.printed: list[str] = []

        def handle_error(self, request: str, address: object) -> None:
            self.printed.append(request)

    server = Server()
    silence_accumulators(server, processes)
    server.handle_error("before", None)
    processes.end_soon()
    server.handle_error("after", None)
    assert server.printed == ["before"]


def test_pyspark_does_not_log_an_error_of_a_query_that_it_raises(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("DataFrame", "SQL"):
        PySparkLogger.getLogger(f"{name}QueryContextLogger").disabled = False  # as pyspark has it
    silence_query_errors()
    for name in ("DataFrame", "SQL"):
        PySparkLogger.getLogger(f"{name}QueryContextLogger").exception("[UNRESOLVED_COLUMN] airpot", errorClass="UNRESOLVED_COLUMN")
    assert capfd.readouterr().err == ""
