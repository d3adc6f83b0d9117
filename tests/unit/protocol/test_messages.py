"""The messages of an API are found by its key, and nothing is imported before somebody asks."""

import subprocess
import sys

import pytest

from moldau.protocol import messages
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse


def test_load_gives_classes_versions_and_the_first_flexible_one() -> None:
    assert tuple(messages.load(ApiKey.CREATE_TOPICS)) == (CreateTopicsRequest, CreateTopicsResponse, (2, 7), 5)


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_every_api_has_messages_named_after_it(api_key: ApiKey) -> None:
    pair = messages.load(api_key)
    assert pair.request.__name__.removesuffix("Request") == pair.response.__name__.removesuffix("Response")
    assert pair.request.__name__.removesuffix("Request").lower() == api_key.name.replace("_", "").lower()
    assert messages.load(api_key) is pair


def test_nothing_is_imported_at_start() -> None:
    program = (
        "import sys, moldau.protocol.messages, moldau.protocol.headers, moldau.protocol.versions\n"
        "before = [name for name in sys.modules if name.startswith('moldau.protocol.messages.')]\n"
        "moldau.protocol.messages.load(moldau.protocol.versions.ApiKey.METADATA)\n"
        "after = [name for name in sys.modules if name.startswith('moldau.protocol.messages.')]\n"
        "print(before, after)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] ['moldau.protocol.messages.metadata']"
