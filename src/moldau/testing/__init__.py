"""For tests, ours and those of our users: fakes of the ports, a broker and a cluster to test against.

``from moldau.testing import Broker, Cluster``. Nothing is imported before it is asked for, since pytest imports this room in every run.
"""

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.testing.broker import Broker
    from moldau.testing.cluster.cluster import Cluster

__all__ = ["Broker", "Cluster"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        collects = gc.isenabled()
        gc.disable()  # what the import makes stays: to look through it again and again takes a twentieth of the time
        try:
            from moldau.testing.broker import Broker
        finally:
            if collects:
                gc.collect(1)  # once, and never again with the young
                gc.enable()

        return Broker
    if name == "Cluster":
        from moldau.testing.cluster.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
