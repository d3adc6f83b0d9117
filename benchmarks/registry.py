"""The schema registry with 2,000 schemas: how soon it answers, and what a look-up costs.

    python benchmarks/registry.py [--schemas 2000] [--runs 5] [--out FILE]

`ready_ms` runs from the exec of a process of the registry's own to its first answer to a look-up; `import_ms` of that is what loading
its code takes, `start_ms` the call of `RegistryServer.start`, which reads the topic to its end. `lookup` is one GET /schemas/ids/N after
the other over one connection: `server_cpu_us` is the processor time of the registry's process per look-up, which also serves HTTP;
`round_trip_us` is what the client sees. `register` writes new schemas one after the other, each acknowledged and visible.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from measure import Results, cpu_seconds, load_average, spread
from moldau.testing import Broker
from systems import ROOT

LOOKUPS = 3_000
STARTER = """
import json, sys, time
begun = time.perf_counter()
from moldau.registry.server import RegistryServer
imported = time.perf_counter()
registry = RegistryServer(sys.argv[1], "127.0.0.1:0")
url = registry.start()
started = time.perf_counter()
print(json.dumps({"url": url, "import_ms": (imported - begun) * 1000, "start_ms": (started - imported) * 1000}), flush=True)
sys.stdin.read()
registry.stop()
"""


class Connection:
    """One connection that is kept."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """One request that succeeds."""
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer


def schema(number: int) -> str:
    """A record of ten fields, another one for each number."""
    fields = [{"name": f"field_{number}_{index}", "type": ["null", "string"], "default": None} for index in range(10)]
    return json.dumps({"type": "record", "name": f"Event{number}", "namespace": "bench", "fields": fields})


def one_run(bootstrap: str, schemas: int) -> dict[str, float]:
    """Start a registry over the full topic and ask it."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        ask = Connection(told.pop("url"))
        ask("GET", "/schemas/ids/1")
        told["ready_ms"] = (time.perf_counter() - begun) * 1000
        for schema_id in range(1, 101):
            ask("GET", f"/schemas/ids/{schema_id}")
        begun, cpu = time.perf_counter(), cpu_seconds(process.pid)
        for number in range(LOOKUPS):
            ask("GET", f"/schemas/ids/{number * 7 % schemas + 1}")
        told["round_trip_us"] = (time.perf_counter() - begun) / LOOKUPS * 1e6
        told["server_cpu_us"] = (cpu_seconds(process.pid) - cpu) / LOOKUPS * 1e6
        process.stdin.close()
        return {name: round(value, 1) for name, value in told.items()}


def main() -> None:
    """Fill a topic, then start registries over it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    with tempfile.TemporaryDirectory() as directory, Broker(directory=directory, registry=True) as broker:
        ask = Connection(broker.registry_url)
        ask("POST", "/subjects/bench-0/versions", {"schema": schema(0)})  # the election, and the languages' code
        begun = time.perf_counter()
        for number in range(1, given.schemas):
            ask("POST", f"/subjects/bench-{number}/versions", {"schema": schema(number)})
        filled_s = time.perf_counter() - begun
        each_ms = round(filled_s / (given.schemas - 1) * 1000, 2)
        results.write(system="moldau", test="registry-register", summary=True, schemas=given.schemas, ms_each=each_ms)
        runs = []
        for run in range(given.runs):
            runs.append(one_run(broker.bootstrap_servers, given.schemas))
            results.write(system="moldau", test="registry", run=run, schemas=given.schemas, load=load_average(), **runs[-1])
        summary = {name: spread([each[name] for each in runs]) for name in runs[0]}
        results.write(system="moldau", test="registry", summary=True, schemas=given.schemas, **summary)


if __name__ == "__main__":
    main()
