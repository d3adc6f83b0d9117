"""Whatever schema comes in, its sender gets a clear answer in time; look-ups, other registrations and a stop do not wait for it (F1)."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.registry.limits import WorkLimits
from moldau.testing import Broker
from support.registry import Rest, Told, record, running_registry

pytestmark = pytest.mark.system

PATIENCE_S = 60.0
TASK_S = 2.0


def slow(name: str) -> str:
    """A schema that takes longer than it may: a large record, and another one that is defined again and again and holds it."""
    fields = [{"name": f"f{each}", "type": "int"} for each in range(6_000)]
    first = {"name": "big", "type": {"type": "record", "name": "Big", "fields": fields}}
    again = {"type": "record", "name": "Small", "fields": [{"name": "b", "type": "Big"}]}
    return json.dumps({"type": "record", "name": name, "fields": [first, *({"name": f"r{each}", "type": again} for each in range(6_000))]})


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class Asked(threading.Thread):
    """A request in a thread."""

    def __init__(self, rest: Rest, path: str, body: Any) -> None:
        super().__init__()
        self._ask: Callable[[], Told] = lambda: rest("POST", path, body)
        self.told: Told | None = None
        self.start()

    def run(self) -> None:
        self.told = self._ask()

    def answer(self) -> Told:
        """What it was told, in the end."""
        self.join(PATIENCE_S)
        assert self.told is not None
        return self.told


def test_a_schema_that_takes_too_long_is_refused_and_delays_no_other_request(broker: Broker) -> None:
    with running_registry(broker.bootstrap_servers, group="slow", topic="slow", work_limits=WorkLimits(task_s=TASK_S)) as registry:
        rest = Rest(registry.url)
        known = rest.ok("POST", "/subjects/good/versions", {"schema": '"string"'})["id"]
        hostile = Asked(rest, "/subjects/bad/versions", {"schema": slow("A")})
        asked = 0
        while hostile.is_alive():
            assert rest.ok("GET", f"/schemas/ids/{known}")["schema"] == '"string"'
            assert rest.ok("POST", "/subjects/good/versions", {"schema": '"string"'})["id"] == known
            assert rest.ok("POST", f"/subjects/other-{asked}/versions", {"schema": json.dumps(record(f"R{asked}"))})["version"] == 1
            asked += hostile.is_alive()
        told = hostile.answer()
        assert (told.status, told.code) == (422, 42201)
        assert told.body["message"] == f"Invalid schema of type AVRO, details: reading it: it takes more than {TASK_S:g} s"
        assert asked > 1, "others are answered while it is read"
        for path in ("/subjects/good", "/compatibility/subjects/good/versions"):
            assert rest("POST", path, {"schema": slow("A")}).code == 42201


def test_more_schemas_than_may_wait_are_refused_at_once(broker: Broker) -> None:
    limits = WorkLimits(task_s=TASK_S, processes=1, waiting_max=1)
    with running_registry(broker.bootstrap_servers, group="many", topic="many", work_limits=limits) as registry:
        rest = Rest(registry.url)
        rest.ok("POST", "/subjects/good/versions", {"schema": '"string"'})
        asked = [Asked(rest, f"/subjects/bad-{each}/versions", {"schema": slow(f"N{each}")}) for each in range(3)]
        answers = [each.answer() for each in asked]
        assert {each.code for each in answers} == {42201, 50002}
        assert "already waiting to be read" in next(each for each in answers if each.code == 50002).body["message"]


def test_a_stop_does_not_wait_for_a_schema(broker: Broker) -> None:
    with running_registry(broker.bootstrap_servers, group="stop", topic="stop", work_limits=WorkLimits(task_s=PATIENCE_S)) as registry:
        rest = Rest(registry.url)
        rest.ok("POST", "/subjects/good/versions", {"schema": '"string"'})
        hostile = threading.Thread(target=_ask_in_vain, args=(rest,))
        hostile.start()
        time.sleep(0.2)
        start = time.monotonic()
    assert time.monotonic() - start < 10
    hostile.join(PATIENCE_S)
    assert not hostile.is_alive()


def _ask_in_vain(rest: Rest) -> None:
    try:
        rest("POST", "/subjects/bad/versions", {"schema": slow("B")})
    except OSError:
        return


STARTED = """
import json, os, sys
from moldau.registry.server import RegistryServer
from pathlib import Path
with RegistryServer(sys.argv[1], "127.0.0.1:0", topic="bare", group="bare") as registry:
    print(registry.url, flush=True)
    sys.stdin.readline()
    names = ("jsonschema", "google.protobuf", "grpc_tools", "re2", "moldau.registry.schemas.avro")
    print(json.dumps([name for name in names if name in sys.modules]), flush=True)
"""


def test_the_process_of_the_registry_never_loads_what_understands_schemas(broker: Broker) -> None:
    """With `serve --registry` the broker is in it: imports of half a second would hold up its clients."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTED, broker.bootstrap_servers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        rest = Rest(process.stdout.readline().strip())
        for kind, text in (("AVRO", '"string"'), ("JSON", "{}"), ("PROTOBUF", 'syntax = "proto3"; message A {}')):
            rest.ok("POST", f"/subjects/{kind}/versions", {"schema": text, "schemaType": kind})
        process.stdin.write("\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == []


def test_a_worker_that_is_killed_is_replaced(broker: Broker) -> None:
    with running_registry(broker.bootstrap_servers, group="kill", topic="kill") as registry:
        rest = Rest(registry.url)
        rest.ok("POST", "/subjects/a/versions", {"schema": '"string"'})
        for pid in registry.worker_processes():
            os.kill(pid, signal.SIGKILL)
        assert rest.ok("POST", "/subjects/a/versions", {"schema": '"bytes"'})["version"] == 2


def test_a_body_of_very_many_values_is_refused_before_it_is_decoded(broker: Broker) -> None:
    with running_registry(broker.bootstrap_servers, group="body", topic="body") as registry:
        for raw in (b"[" + b"[]," * 30_000 + b"[]]", b'{"a":[' + b'"x",' * 90_000 + b'""]}'):
            assert Rest(registry.url)("POST", "/subjects/a/versions", raw=raw).code == 413
        text = json.dumps({"schema": json.dumps({"type": "enum", "name": "E", "symbols": [f"S{each}" for each in range(30_000)]})})
        assert Rest(registry.url)("POST", "/subjects/a/versions", raw=text.encode()).status == 200
