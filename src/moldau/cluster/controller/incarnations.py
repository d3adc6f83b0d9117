"""Has the next controller know which incarnations of brokers elections have taken account of (``/brokers/incarnations``)."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.cluster.changes import PutIncarnations
from moldau.cluster.store import WriteResult
from moldau.model.errors import CoordinationError

if TYPE_CHECKING:
    from moldau.cluster.controller.events import Outbox
    from moldau.cluster.controller.image import ClusterImage

_LOG = logging.getLogger(__name__)


class StoredIncarnations:
    """See the module. A single broker has no one to lose records to: there is a node from the second one on."""

    def __init__(self, image: "ClusterImage", outbox: "Outbox") -> None:
        self._image = image
        self._outbox = outbox
        self._written: dict[int, int] = {}
        self._is_writing = False

    def found(self, incarnations: Mapping[int, int], version: int | None) -> None:
        """The tree has these, None for no node."""
        self._image.incarnations, self._image.incarnations_version = dict(incarnations), version
        self._written = dict(incarnations)

    def settle(self, lossy: Mapping[int, int]) -> None:
        """All partitions were elected without what these incarnations may have lost."""
        self._image.settle_lossy(lossy)
        self._write()

    def _write(self) -> None:
        epochs, version = dict(self._image.incarnations), self._image.incarnations_version
        if self._is_writing or epochs == self._written or (version is None and len(epochs) < 2):
            return
        self._is_writing = True

        def written(outcome: WriteResult | CoordinationError) -> None:
            self._is_writing = False
            if isinstance(outcome, WriteResult):
                self._image.incarnations_version = 0 if version is None else version + 1
                self._written = epochs
                self._write()
            else:  # the next one has them too
                _LOG.warning("incarnations of brokers not stored: reason=%s", outcome)

        self._outbox.write([PutIncarnations(epochs, version)], written)
