"""Look-ups by time, run in pieces on the thread for computing, one piece of each after the other.

A look-up is a search of `moldau.log.timestamps`. The broker's thread takes each of its steps, which are short; the pieces of work that it
yields wait in one line with those of all others, so that a small look-up waits for one piece of each large one at most. Connections are
held meanwhile: there is one look-up of each, and one whose connection is lost ends after its present piece.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from moldau.model.errors import ErrorCode, PeerError, StorageError

if TYPE_CHECKING:
    from moldau.log.timestamps import Piece, Reached, TimeSearch, TimestampOffset
    from moldau.ports.background import Background
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

Done = Callable[["TimestampOffset | None", PeerError | StorageError | None], object]


class TimeLookup:
    """One search under way."""

    __slots__ = ("_abandoned", "_clock", "_compute", "_done", "_search")

    def __init__(self, search: "TimeSearch", compute: "Background", clock: "Clock", done: Done) -> None:
        """`done` is called with what was found or with the error, unless the look-up is abandoned."""
        self._search = search
        self._compute = compute
        self._clock = clock
        self._done = done
        self._abandoned = False

    def start(self) -> None:
        """Begin; it may end at once."""
        self._advance(partial(next, self._search))

    def abandon(self) -> None:
        """The connection that asked is lost."""
        self._abandoned = True

    def _advance(self, resume: "Callable[[], Piece | None]") -> None:
        if self._abandoned:
            self._search.close()
            return
        try:
            piece = resume()
        except StopIteration as end:
            self._done(end.value, None)
        except (PeerError, StorageError) as error:
            self._done(None, error)
        except Exception:
            _LOG.exception("look-up by time given up by a bug")
            self._done(None, PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the look-up failed because of a bug, see the log"))
        else:
            if piece is None:
                self._clock.call_later(0.0, lambda: self._advance(partial(self._search.send, None)))
            else:
                piece.file.retain()
                self._compute.run(piece.run, partial(self._ran, piece))

    def _ran(self, piece: "Piece", reached: "Reached | None", error: BaseException | None) -> None:
        piece.file.release()
        self._advance(partial(self._search.send, reached) if error is None else partial(self._search.throw, error))
