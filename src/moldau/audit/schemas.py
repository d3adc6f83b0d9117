"""Which schema ids stand for tracked events, asked of a schema registry once each.

Without a registry an auditor goes by the shape of the bytes: an Avro record that begins with a number, three texts and 16 bytes looks like
a tracked event, whatever it is.
"""

import json

from moldau.registry.client import RegistryClient, UnknownSchemaError
from moldau.tracking.header import is_tracked_schema


class TrackedSchemas:
    """Calls to it are what a walker asks. RegistryUnavailableError and RegistryError if the registry does not tell."""

    def __init__(self, registry_url: str) -> None:
        self._client = RegistryClient(registry_url)
        self._known: dict[int, bool] = {}

    def __call__(self, schema_id: int) -> bool:
        """Whether events of this schema are tracked; those of an unknown one are not. Unknown ids are asked for again."""
        known = self._known.get(schema_id)
        if known is None:
            try:
                found = self._client.schema(schema_id)
            except UnknownSchemaError:
                return False
            known = self._known[schema_id] = found.type == "AVRO" and is_tracked_schema(json.loads(found.text))
        return known

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()
