"""Silence about a Java that we ended ourselves.

py4j and pyspark print a traceback, from whichever thread it happens in, where a connection to Java is cut: after Ctrl-C, with which we end
Java at once, it would stand where a user looks for what the command did. A Java that ends by itself is reported as before.
"""

import logging
from typing import Any

from moldau.lake.spark_processes import SparkProcesses


class _CutConnections(logging.Filter):
    """Drops what py4j logs, to the root logger, about a cut connection to processes that are being ended."""

    def __init__(self, processes: SparkProcesses) -> None:
        super().__init__()
        self._processes = processes

    def filter(self, record: logging.LogRecord) -> bool:
        return not (self._processes.ending and record.module == "java_gateway")


def silence_py4j(processes: SparkProcesses) -> None:
    """py4j logs nothing about these processes from when they are being ended on."""
    logging.getLogger().addFilter(_CutConnections(processes))


def silence_accumulators(server: Any, processes: SparkProcesses) -> None:
    """The server to which tasks of these processes send their accumulators prints no error from when they are being ended on."""
    print_error = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not processes.ending:
            print_error(request, address)

    server.handle_error = handle_error
