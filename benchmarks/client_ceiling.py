"""What the load client reaches when the broker costs next to nothing: the most that any broker can be measured at here.

    python benchmarks/client_ceiling.py [--scale 1.0] [--runs 3] [--out FILE]

`answering_relay.c` stands between the client and Moldau, and answers all Produce requests but the first by itself. The cells are those of
`throughput.py` with acks 1, Moldau itself in turn.
"""

import argparse
import contextlib
import subprocess
import tempfile
from pathlib import Path

from load import LoadClient, build
from measure import Results, cpu_seconds, load_average, spread
from systems import ROOT, free_port, moldau
from throughput import BATCHES, SIZE


def main() -> None:
    """All sizes of batches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of messages")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="append the JSON lines to this file as well")
    given = parser.parse_args()
    results = Results(given.out)
    program, relay = build(ROOT / "out"), build(ROOT / "out", "answering_relay")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        port = free_port()
        behind = stack.enter_context(moldau(folder / "behind", "--advertise", f"127.0.0.1:{port}"))
        process = stack.enter_context(subprocess.Popen([str(relay), str(port), behind.bootstrap.rpartition(":")[2]]))
        stack.callback(process.kill)  # called before the process is waited for
        plain = stack.enter_context(moldau(folder / "plain"))
        ways = {"relay": (process.pid, f"127.0.0.1:{port}"), "moldau": (plain.pid, plain.bootstrap)}
        clients = {name: LoadClient(program, bootstrap) for name, (_, bootstrap) in ways.items()}
        for batch, (full, settings) in BATCHES.items():
            messages = max(int(full * given.scale), 1000)
            rates: dict[str, list[float]] = {name: [] for name in ways}
            used: dict[str, list[float]] = {name: [] for name in ways}
            for run in range(given.runs + 1):  # the first one warms up
                for name, client in clients.items():
                    topic = f"ceiling-{batch}-{run}"
                    client.create(topic)
                    before = cpu_seconds(ways[name][0])
                    seconds = client.run("produce", topic, messages, SIZE, settings=[*settings, "acks=1"])["seconds"]
                    if run:
                        rates[name].append(round(messages / seconds))
                        used[name].append(round((cpu_seconds(ways[name][0]) - before) / messages * 1e6, 3))
                    client.delete(topic)
            for name in ways:
                row = {"rate": spread(rates[name]), "cpu_s_per_million": spread(used[name])}
                results.write(system=f"ceiling: {name}", test="ceiling", batch=batch, acks="1", summary=True, load=load_average(), **row)


if __name__ == "__main__":
    main()
