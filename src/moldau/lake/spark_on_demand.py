"""A Spark that starts when it is first needed, since it takes seconds: where there is nothing to load, it never does."""

import logging
import threading
from collections.abc import Callable
from typing import Any

from moldau.lake.spark_processes import SparkProcesses

log = logging.getLogger(__name__)

Start = Callable[[SparkProcesses], Any]


class SparkOnDemand:
    """A proxy of what `start` returns; the first use starts it, from any thread. What `start` raises, each use raises.

    `close` ends it and all its processes, and removes its directory if that is a temporary one and Spark did start.
    """

    def __init__(self, start: Start, directory: str | None = None, *, prefix: str = "moldau-spark-") -> None:
        self._start = start
        self._directory = directory
        self._prefix = prefix
        self._lock = threading.Lock()
        self._processes: SparkProcesses | None = None
        self._session: Any = None
        self._failure: Exception | None = None
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._started(), name)

    @property
    def was_needed(self) -> bool:
        """Whether anything has used it."""
        return self._processes is not None

    @property
    def is_starting(self) -> bool:
        """Whether it was needed, and is not there yet."""
        return self._processes is not None and self._session is None and self._failure is None

    @property
    def is_running(self) -> bool:
        """Whether it is there."""
        return self._session is not None

    def _started(self) -> Any:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                self._processes = SparkProcesses(self._directory, prefix=self._prefix)
                if self._ended:
                    self._processes.end_soon()
                try:
                    self._session = self._start(self._processes)
                except Exception as error:
                    self._failure = error
                    raise
            return self._session

    def end_soon(self) -> None:
        """Kill it, also if it is just starting, from a signal handler: other uses of it fail. Does not wait."""
        self._ended = True
        if self._processes is not None:
            self._processes.end_soon()

    def close(self) -> None:
        """End it in good order."""
        if self._processes is None:
            return
        if self._session is not None and not self._ended:
            try:
                self._session.stop()
            except Exception as error:  # whatever Java's end makes of it: its processes are ended in any case
                log.info("Spark was not stopped in good order: %s", error)
        if self._failure is not None and not self._ended:
            self._processes.keep_directory()
        self._processes.end()
