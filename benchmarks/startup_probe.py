"""One fresh process of `startup.py`: imports the test broker, starts it twice, prints the milliseconds as JSON."""

import json
import socket
import time

API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""Size 10, key 18, version 0, correlation id 1, no client id: answered by every broker."""


def wait_for_answer(port: int, limit_s: float = 30.0) -> None:
    """Ask ApiVersions until it is answered."""
    deadline = time.perf_counter() + limit_s
    while time.perf_counter() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.sendall(API_VERSIONS_V0)
                if connection.recv(4096):
                    return
        except OSError:
            time.sleep(0.001)
    raise SystemExit(f"nobody answers on port {port}")


def main() -> None:
    """Import, first start, second start."""
    begun = time.perf_counter()
    from moldau.testing import Broker

    measured = {"import_ms": 1000 * (time.perf_counter() - begun)}
    for name in ("start_ms", "second_start_ms"):
        begun = time.perf_counter()
        with Broker() as broker:
            wait_for_answer(int(broker.bootstrap_servers.rpartition(":")[2]))
            measured[name] = 1000 * (time.perf_counter() - begun)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
