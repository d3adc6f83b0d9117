"""How a load fails, each a line that a person can act on. Offsets and files of the table are as before then."""

import re

from moldau.lake.reading.offsets import DataLossError

_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:Error|Exception)): (.+)$")
_CRASHED = "Python worker exited unexpectedly"


class LoadError(RuntimeError):
    """A load cannot continue; the message names the topic or the table."""


class NoSchemaError(LoadError):
    """There are records, and no schema to read them by; one may still be registered."""


class SchemaChangeError(LoadError):
    """Events have changed in a way that the table cannot follow; the message names subject, version and column."""


class TaskError(LoadError):
    """A Spark task failed; the message is that of the task."""


def task_failure(topic: str, error: Exception) -> RuntimeError:
    """The error of a task, out of the page of text that Spark makes of it. DataLossError stays one."""
    text = str(error)
    found = [match for line in text.splitlines() if (match := _PYTHON_ERROR.match(line.strip()))]
    ours = [match for match in found if not match[1].startswith(("PySpark", "Spark", "Py4J"))]
    if ours:
        name, message = ours[-1][1], ours[-1][2]
        if name == "DataLossError":
            return DataLossError(message)
        return TaskError(f"topic {topic}: {message}")
    if _CRASHED in text:
        return TaskError(f"topic {topic}: a Python process of Spark died in the middle of a task: it was killed, or memory ran out")
    if type(error).__name__ == "Py4JNetworkError":
        return TaskError(f"topic {topic}: Spark's Java process has ended")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return TaskError(f"topic {topic}: Spark failed: {lines[0] if lines else type(error).__name__}")
