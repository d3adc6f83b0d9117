"""Many register at the same time, at two registries of one log: a schema has one id, an id one schema, a subject no gap (F1)."""

import threading
from collections import defaultdict

from moldau.registry.client import RegistryClient
from moldau.testing import Broker
from support.registry import Rest, running_registry

THREADS, SCHEMAS = 4, 4


def test_ids_and_versions_under_concurrent_registration() -> None:
    """Four threads, half of them at the registry that only hands on, register the same schemas in one subject and in one of their own."""
    with Broker() as broker, running_registry(broker.bootstrap_servers) as one, running_registry(broker.bootstrap_servers) as other:
        told: dict[str, set[int]] = defaultdict(set)
        failures: list[Exception] = []

        def register(number: int) -> None:
            try:
                with RegistryClient((one, other)[number % 2].url, timeout_s=60) as client:
                    client.set_compatibility(f"own-{number}", "NONE")
                    for size in range(1, SCHEMAS + 1):
                        text = f'{{"type":"fixed","name":"f{size}","size":{size}}}'
                        for subject in (f"own-{number}", f"shared-{size}"):
                            told[text].add(client.register(subject, text))
                        assert client.latest(f"own-{number}").version == size, "who was answered sees its change"
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=register, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert all(len(ids) == 1 for ids in told.values()), told
        assert sorted(min(ids) for ids in told.values()) == list(range(1, SCHEMAS + 1))
        for rest in (Rest(one.url), Rest(other.url)):
            for number in range(THREADS):
                assert rest.ok("GET", f"/subjects/own-{number}/versions") == list(range(1, SCHEMAS + 1))
            for size in range(1, SCHEMAS + 1):
                assert rest.ok("GET", f"/subjects/shared-{size}/versions") == [1]
