"""Loading a lake from the log: a PySpark data source, and tables that keep their offsets.

``from moldau.lake import LoadJobs, LoadService, wait_until_complete``. Nothing is imported before it is asked for. One load of one topic is
`moldau.lake.loading.load.load`.
"""

from typing import TYPE_CHECKING, Any

from moldau.model.extras import load

if TYPE_CHECKING:
    from moldau.lake.dataset import scan
    from moldau.lake.loading.job import LoadJob, LoadJobs
    from moldau.lake.loading.service import LoadService
    from moldau.lake.merging.merge import merge_table
    from moldau.lake.table import compact_table, completion_watermark, read_table, remove_orphans, wait_until_complete

_HOMES = {
    "LoadJob": "moldau.lake.loading.job",
    "LoadJobs": "moldau.lake.loading.job",
    "LoadService": "moldau.lake.loading.service",
    "compact_table": "moldau.lake.table",
    "completion_watermark": "moldau.lake.table",
    "merge_table": "moldau.lake.merging.merge",
    "read_table": "moldau.lake.table",
    "remove_orphans": "moldau.lake.table",
    "scan": "moldau.lake.dataset",
    "wait_until_complete": "moldau.lake.table",
}

__all__ = [
    "LoadJob",
    "LoadJobs",
    "LoadService",
    "compact_table",
    "completion_watermark",
    "merge_table",
    "read_table",
    "remove_orphans",
    "scan",
    "wait_until_complete",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(__name__, name, _HOMES[name], "lake")
