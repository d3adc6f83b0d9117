"""Very many subjects, versions and contexts: their lists are made beside the look-ups, come in pages, and have a bound (F1)."""

import itertools
import threading
from collections.abc import Iterator

import pytest

from moldau.registry import lookups
from moldau.registry.errors import schema_not_found
from moldau.registry.records import SchemaKey, SchemaVersion, encode_key, encode_schema
from moldau.registry.server import RegistryServer
from moldau.testing import Broker
from support.registry import Rest, running_registry

pytestmark = pytest.mark.system

SUBJECTS = 5_000
PATIENCE_S = 30.0


def fill(registry: RegistryServer) -> None:
    """Every tenth subject is deleted; one has very many versions, and one name is in very many contexts."""
    versions = [
        *((f"s{each:05}", 1) for each in range(SUBJECTS)),
        *((f":.c{each:05}:everywhere", 1) for each in range(SUBJECTS)),
        *(("many", each) for each in range(1, SUBJECTS)),
    ]
    for number, (subject, version) in enumerate(versions, 1):
        schema = SchemaVersion(subject, version, number, f'"x{number}"', deleted=number % 10 == 0)
        registry.state.apply(number, 0, encode_key(SchemaKey(subject, version)), encode_schema(schema))
    assert not registry.state.left_out


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with Broker() as broker, running_registry(broker.bootstrap_servers, memory_bytes_max=64 << 20) as running:
        fill(running)
        yield running


def test_subjects_are_listed_by_prefix_deleted_or_not_and_in_pages(registry: RegistryServer) -> None:
    rest = Rest(registry.url)
    assert len(rest.ok("GET", "/subjects")) == 2 * SUBJECTS * 9 // 10 + 1
    assert len(rest.ok("GET", "/subjects?deleted=true")) == 2 * SUBJECTS + 1
    assert len(rest.ok("GET", "/subjects?deletedOnly=true")) == 2 * SUBJECTS // 10
    assert rest.ok("GET", "/subjects?subjectPrefix=s0012&deleted=true") == [f"s0012{each}" for each in range(10)]
    assert rest.ok("GET", "/subjects?subjectPrefix=s0012&deletedOnly=true") == ["s00129"]
    assert rest.ok("GET", "/contexts/.c00007/subjects") == [":.c00007:everywhere"]
    pages = [rest.ok("GET", f"/subjects?subjectPrefix=s&offset={offset}&limit=1000") for offset in range(0, SUBJECTS, 1000)]
    assert list(itertools.chain(*pages)) == rest.ok("GET", "/subjects?subjectPrefix=s")
    assert len(rest.ok("GET", "/subjects/many/versions?deleted=true")) == SUBJECTS - 1
    assert rest.ok("GET", "/subjects/everywhere/versions/1")["subject"] == ":.c00000:everywhere", "in the first context that has it"
    assert rest("GET", "/subjects/nowhere/versions/1").code == 40401


LISTS = {
    "subjects": "/subjects",
    "version_numbers": "/subjects/many/versions",
    "latest_with_metadata": "/subjects/many/metadata?key=a&value=b",
    "referenced_by": "/subjects/many/versions/1/referencedby",
    "holders_of": "/schemas/ids/1/subjects",
    "schemas": "/schemas",
    "by_guid": "/schemas/guids/00000000-0000-0000-0000-000000000000",
    "ids_of_guid": "/schemas/guids/00000000-0000-0000-0000-000000000000/ids",
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_takes_long_holds_up_no_look_up(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    listing, go_on = threading.Event(), threading.Event()

    def wait(*_: object, **__: object) -> list[object]:
        listing.set()
        assert go_on.wait(PATIENCE_S)
        raise schema_not_found()

    monkeypatch.setattr(lookups, name, wait)
    asked = threading.Thread(target=lambda: Rest(registry.url)("GET", LISTS[name]))
    asked.start()
    try:
        assert listing.wait(PATIENCE_S)
        assert Rest(registry.url).ok("GET", "/schemas/ids/1")["schema"] == '"x1"'
    finally:
        go_on.set()
        asked.join()
