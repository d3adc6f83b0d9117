"""Stream jobs on Spark: topics in, DataFrames between, topics and tables out, each row once (docs/streams.md).

``from moldau.streams import StreamJob, windows``. Nothing is imported before it is asked for.
"""

from typing import TYPE_CHECKING, Any

from moldau.model.extras import load

if TYPE_CHECKING:
    from moldau.streams.job import StreamJob

__all__ = ["StreamJob"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(__name__, name, "moldau.streams.job", "lake")
