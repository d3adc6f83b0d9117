"""SQLite as the source of a changelog: triggers write changes into an outbox, in the transaction of the writer, and a publisher reads it.

``from moldau.changelog.sqlite import Store``. Nothing is imported before it is asked for.
"""

from typing import TYPE_CHECKING, Any

from moldau.model.extras import load

if TYPE_CHECKING:
    from moldau.changelog.sqlite.promotion import promote
    from moldau.changelog.sqlite.source import Source
    from moldau.changelog.sqlite.store import Store, WriteTransaction

_HOMES = {
    "Source": "moldau.changelog.sqlite.source",
    "Store": "moldau.changelog.sqlite.store",
    "WriteTransaction": "moldau.changelog.sqlite.store",
    "promote": "moldau.changelog.sqlite.promotion",
}

__all__ = ["Source", "Store", "WriteTransaction", "promote"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(__name__, name, _HOMES[name], "client")
