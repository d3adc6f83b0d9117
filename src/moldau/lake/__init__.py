"""Loading a lake from the log: a PySpark data source, tables that keep their offsets, and the demonstration of both.

``from moldau.lake import LoadJobs, LoadService, wait_until_complete``. Nothing is imported before it is asked for. One load of one topic is
`moldau.lake.load.load`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.lake.load_job import LoadJob
    from moldau.lake.load_jobs import LoadJobs
    from moldau.lake.load_service import LoadService
    from moldau.lake.table import compact_table, completion_watermark, read_table, remove_orphans, wait_until_complete

_HOMES = {
    "LoadJob": "moldau.lake.load_job",
    "LoadJobs": "moldau.lake.load_jobs",
    "LoadService": "moldau.lake.load_service",
    "compact_table": "moldau.lake.table",
    "completion_watermark": "moldau.lake.table",
    "read_table": "moldau.lake.table",
    "remove_orphans": "moldau.lake.table",
    "wait_until_complete": "moldau.lake.table",
}

__all__ = [
    "LoadJob",
    "LoadJobs",
    "LoadService",
    "compact_table",
    "completion_watermark",
    "read_table",
    "remove_orphans",
    "wait_until_complete",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
