"""For tests, ours and those of our users: fakes of the ports, a broker to test against.

``from moldau.testing import Broker``. Nothing is imported before it is asked for, since pytest imports this room in every run.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from moldau.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
