"""Stream jobs on Spark: topics in, DataFrames between, topics and tables out, each row once (docs/streams.md).

``from moldau.streams import StreamJob, windows``. Nothing is imported before it is asked for.
"""

from typing import TYPE_CHECKING, Any

from moldau.model.extras import load

if TYPE_CHECKING:
    from moldau.streams.following import output, places
    from moldau.streams.job import StreamJob

__all__ = ["StreamJob", "output", "places"]
_MODULES = {"StreamJob": "moldau.streams.job", "output": "moldau.streams.following", "places": "moldau.streams.following"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(__name__, name, _MODULES[name], "lake")
