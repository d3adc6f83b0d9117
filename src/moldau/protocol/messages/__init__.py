"""The messages of every API, one module each, loaded when first asked for.

The module of an API is named as its key is, its classes after that: `CREATE_TOPICS` lives in `create_topics` as `CreateTopicsRequest` and
`CreateTopicsResponse`. Classes and fields carry Kafka's names.
"""

from importlib import import_module
from typing import Any, NamedTuple

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.versions import CODEC, FLEXIBLE_FROM, VersionRange


class MessagePair(NamedTuple):
    """The two messages of an API."""

    request: type[Any]
    response: type[Any]
    versions: VersionRange
    flexible_from: int | None


_loaded: dict[ApiKey, MessagePair] = {}


def load(api_key: ApiKey) -> MessagePair:
    """The messages of an API; its module is imported by the first call."""
    pair = _loaded.get(api_key)
    if pair is None:
        module = import_module(f"{__name__}.{api_key.name.lower()}")
        stem = api_key.name.title().replace("_", "")
        request, response = getattr(module, f"{stem}Request"), getattr(module, f"{stem}Response")
        pair = _loaded[api_key] = MessagePair(request, response, CODEC[api_key], FLEXIBLE_FROM[api_key])
    return pair
