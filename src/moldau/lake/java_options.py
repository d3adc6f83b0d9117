"""Options of Spark's Java: as Spark takes them, those that a user has given in other places, and the collector of a small heap."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OPTIONS_VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""Of Java options, before those of Spark's settings, which win therefore."""
_OF_JAVA: Final = (OPTIONS_VARIABLE, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
SERIAL_COLLECTOR: Final = "-XX:+UseSerialGC"
_COLLECTOR: Final = re.compile(r"-XX:[+-]Use\w+GC\b|-XX:(Flags|VMOptionsFile)=|(^|[\s=])@|--properties-file\b")
"""An option of a collector, or a file that may have one."""
_CORES_MAX: Final = 2
_MEMORY_MAX_MB: Final = 4096
_SUBMITTED: Final = "PYSPARK_SUBMIT_ARGS"
_FILES: Final = ("spark-defaults.conf", "spark-env.sh", "java-opts")


def java_options(options: Iterable[str]) -> str:
    """As one text, which Spark's launcher takes apart again."""
    return " ".join(_quoted(each) for each in options)


def before_given(options: str | None) -> str:
    """These, and then those of SPARK_SUBMIT_OPTS, in one text."""
    return " ".join(filter(None, (options, os.environ.get(OPTIONS_VARIABLE))))


def given_options() -> str:
    """Those of Java that the environment has, in one text."""
    return " ".join(filter(None, map(os.environ.get, _OF_JAVA)))


def collector_options(cores: int, memory_mb: float, settings: Mapping[str, str]) -> tuple[str, ...]:
    """The collector for a Spark on so many cores of this host; none where Java's own choice, or the user's, is to stand.

    On two cores the serial collector takes less processor time than Java's own choice, G1, and makes the heap a third smaller (decision
    0030). With more cores or memory its pauses would count. Java does not start with two collectors.
    """
    if cores > _CORES_MAX or memory_mb > _MEMORY_MAX_MB:
        return ()
    given = (given_options(), os.environ.get(_SUBMITTED, ""), *map(str, settings.values()), *_kept())
    return () if names_collector(*given) else (SERIAL_COLLECTOR,)


def names_collector(*texts: str) -> bool:
    """Whether one of them has the option of a collector, or names a file of options."""
    return any(_COLLECTOR.search(each) for each in texts)


def _kept() -> Iterator[str]:
    """What the user keeps in files for each Spark of a home."""
    found = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or os.path.dirname((found and found.origin) or "")
    for name in _FILES:
        with suppress(OSError):
            yield Path(os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"), name).read_text(errors="replace")


def _quoted(option: str) -> str:
    if not set(option) & set(" \t\"'\\"):
        return option
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
