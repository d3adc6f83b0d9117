"""Which schema ids are those of tracked events, asked of a schema registry once each.

Without a registry an auditor goes by the shape of the bytes: an Avro record that begins with a number, three texts and 16 bytes looks like
a tracked event, whatever it is.
"""

import json
import time
from collections.abc import Callable

from moldau.registry.client import RegistryClient, RegistryError, RegistryUnavailableError, UnknownSchemaError
from moldau.tracking.header import is_tracked_schema

_UNKNOWN_S = 10.0
_LATER = (429, 500, 502, 503, 504)
"""Answers of a registry that is not ready: one that is starting, or without its log."""


class TrackedSchemas:
    """Asks the registry at a URL, or a client of one. Raises RegistryUnavailableError and RegistryError."""

    def __init__(self, registry: str | RegistryClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = RegistryClient(registry) if isinstance(registry, str) else registry
        self._known: dict[int, bool] = {}
        self._unknown_until: dict[int, float] = {}
        self._monotonic = monotonic

    def __call__(self, schema_id: int) -> bool:
        """Whether events of this schema are tracked; those of an unknown one are not. An unknown id is asked for again after a while."""
        known = self._known.get(schema_id)
        if known is None:
            if self._monotonic() < self._unknown_until.get(schema_id, 0.0):
                return False
            try:
                found = self._client.schema(schema_id)
            except UnknownSchemaError:
                self._unknown_until[schema_id] = self._monotonic() + _UNKNOWN_S
                return False
            except RegistryError as error:
                if error.status not in _LATER:
                    raise
                raise RegistryUnavailableError(str(error)) from error
            known = self._known[schema_id] = found.type == "AVRO" and is_tracked_schema(json.loads(found.text))
        return known

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
