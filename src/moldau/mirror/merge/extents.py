"""From where the batches of one partition of a source have come: what mirrors that write to it have stored about them.

Runs of one producer that are read one after the other and have the same chain are one extent: a producer has one transaction at a time, so
between two of its runs it has written nothing that committed readers see.
"""

from bisect import bisect_right
from typing import NamedTuple

from moldau.mirror.merge.runs import Chain


class _Extent(NamedTuple):
    first: int
    end: int
    chain: Chain
    read_at: int
    """Offset in `_mirror_offsets` of its first run."""


class Extents:
    """See the module. Offsets are those of the partition."""

    def __init__(self) -> None:
        self._extents: dict[int, list[_Extent]] = {}
        """By producer id, in order of the offsets."""
        self._opened: set[int] = set()
        """Producers whose last extent may grow."""

    def __len__(self) -> int:
        return sum(map(len, self._extents.values()))

    def begin_round(self) -> None:
        """What is added from now on begins extents of its own: those of before can be dropped without it."""
        self._opened.clear()

    def add(self, producer_id: int, first: int, end: int, chain: Chain, read_at: int) -> None:
        """Add the next run of a producer. One at earlier offsets than those before it replaces them: the log is another one."""
        mine = self._extents.setdefault(producer_id, [])
        while mine and mine[-1].end > first:
            mine.pop()
            self._opened.discard(producer_id)
        if mine and producer_id in self._opened and mine[-1].chain == chain:
            mine[-1] = mine[-1]._replace(end=end)
        else:
            mine.append(_Extent(first, end, chain, read_at))
            self._opened.add(producer_id)

    def chain(self, producer_id: int, offset: int) -> Chain | None:
        """The chain of the batch at an offset; None if it is not known."""
        mine = self._extents.get(producer_id, [])
        index = bisect_right(mine, offset, key=lambda each: each.first) - 1
        return mine[index].chain if index >= 0 and offset < mine[index].end else None

    def drop_before(self, position: int) -> None:
        """Nothing before a position is asked for any more."""
        for producer_id, mine in list(self._extents.items()):
            count = next((index for index, each in enumerate(mine) if each.end > position), len(mine))
            if count == len(mine):
                del self._extents[producer_id]
                self._opened.discard(producer_id)
            elif count:
                del mine[:count]

    def read_from(self, position: int) -> int | None:
        """Where the first run is in `_mirror_offsets` that reaches beyond a position; None if none does."""
        return min((each.read_at for mine in self._extents.values() for each in mine if each.end > position), default=None)
