"""How much a test does: a quick share in `make test`, all of it with MOLDAU_TORTURE=1 (`make torture`)."""

import os

TORTURE = os.environ.get("MOLDAU_TORTURE") == "1"
FACTOR = 10


def sized(quick: int, torture: int | None = None) -> int:
    """A number of examples, kills, seconds: `quick`, or at full size `torture`, by default ten times as much."""
    return quick if not TORTURE else quick * FACTOR if torture is None else torture
