"""Mirrors over a slow link: of 100 ms round trip, with 1 % of the packets lost, of 200 Mbit/s. Needs root and a kernel with TUN.

    python benchmarks/mirror_link.py [--scale 1.0] [--runs 3] [--mirrors copy,merge,mm2,mm2-tuned] [--sizes 200,1000] [--far source]
                                     [--partitions 4] [--congestion bbr] [--limits "name = value"] [--out FILE]

Two brokers of Moldau in network namespaces with `slow_link.c` between them. The source is far, as mirrors run beside their target; or
the target is, with `--far target`. Each mirror gets a topic of its own with 400 MB of messages (times --scale) in four partitions, made
beside the source, and is started only then. `share` is the part of the link that the values of the messages fill while they flow: from
the first look at which some are in the target to the last one, or for at most a minute. Headers of messages, batches and packets do not
count: 0.93 would be all.

`mm2` is MirrorMaker 2 with its defaults, whose consumer has a receive buffer of 64 KB; `mm2-tuned` has the system's, and four tasks.
`tcp` is what bare connections fill, one and four, from the far side to the near one.
"""

import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import in_turn
from load import LoadClient, build
from measure import Results, load_average, resident_mb, spread
from mirror_rates import PARTITIONS, Link, catch_up, mirroring
from slow_network import FAR_ADDRESS, NEAR_ADDRESS, SlowLink, SlowNetwork, slow_network
from systems import ROOT, moldau

BYTES, SIZES = 400_000_000, (200, 1_000)
MIRRORS = ("copy", "merge", "mm2", "mm2-tuned")
ENOUGH_S, TCP_S = 60.0, 15.0
DELAY_MS, LOSS_PERCENT, MBIT_S = 50.0, 1.0, 200.0
_TUNED = """
tasks.max=4
source.consumer.receive.buffer.bytes=-1
target.producer.send.buffer.bytes=-1
target.producer.batch.size=262144
"""
_BROKER = ("--set", "socket.send.buffer.bytes=-1", "--set", "socket.receive.buffer.bytes=-1")
"""The system's own, which grow: with the 100 KiB that Kafka and Moldau have by default a connection carries 7 Mbit/s at this delay."""
_FIGURES = ("share", "rate", "first_s", "all_s", "cpu_s_per_million", "rss_mb", "peak_mb")


def flow(link: Link, kind: str, topic: str, messages: int, size: int, limits: str) -> dict[str, Any]:
    """Mirror a topic that is full; the figures."""
    more = {"mm2": "", "mm2-tuned": _TUNED}.get(kind, f"[limits]\n{limits}")
    mirror, begun = kind.partition("-")[0], time.monotonic()
    with mirroring(mirror, link, topic, more) as process:
        figures = catch_up(link, mirror, topic, process, begun, messages, ENOUGH_S)
        figures["peak_mb"] = resident_mb(process.pid, "VmHWM")
    return {"share": round(figures["rate"] * size * 8 / (MBIT_S * 1e6), 3), **figures}


def measure(given: argparse.Namespace, network: SlowNetwork, link: Link, loading: LoadClient, results: Results) -> None:
    """All mirrors, in turn, with messages of each size."""
    for connections in () if "tcp" not in given.mirrors else (1, 4):
        shares = [network.tcp_share(connections, TCP_S) for _ in range(given.runs)]
        results.write(
            system=f"tcp, {connections} connections", test="mirror_link", summary=True, share=spread([round(each, 3) for each in shares])
        )
    mirrors = [each for each in given.mirrors if each != "tcp"]
    for size in given.sizes:
        messages = max(int(BYTES * given.scale) // size, 10_000)
        rows: dict[str, list[dict[str, Any]]] = {}
        for run in range(given.runs):
            for kind in in_turn(mirrors, run):
                topic = f"{kind}-{size}-{run}"
                loading.create(topic, given.partitions)
                loading.run("produce", f"{topic}:{given.partitions}", messages, size, settings=["acks=-1"])
                load = load_average()
                figures = flow(link, kind, topic, messages, size, given.limits)
                loading.delete(topic)
                rows.setdefault(kind, []).append(figures)
                results.write(system=kind, test="mirror_link", far=given.far, size=size, run=run, load=load, **figures)
        for kind, runs in rows.items():
            found = {figure: spread([run[figure] for run in runs]) for figure in _FIGURES}
            results.write(system=kind, test="mirror_link", summary=True, far=given.far, size=size, **found)


def main() -> None:
    """Make the link and the brokers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of messages")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mirrors", type=lambda text: tuple(text.split(",")), default=("tcp", *MIRRORS))
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES)
    parser.add_argument("--far", choices=("source", "target"), default="source")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--loss", type=float, default=LOSS_PERCENT, help="percent of the packets")
    parser.add_argument(
        "--congestion", default="bbr", help="TCP's congestion control on both sides: bbr, or reno, which takes each loss for congestion"
    )
    parser.add_argument("--limits", default="", help="settings in [limits] of our mirrors' files")
    parser.add_argument("--out", type=Path, help="append the JSON lines to this file as well")
    given = parser.parse_args()
    results, program = Results(given.out), build(ROOT / "out")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        network = stack.enter_context(slow_network(SlowLink(DELAY_MS, given.loss, MBIT_S, given.congestion), ROOT / "out"))
        far = stack.enter_context(moldau(folder / "far", *_BROKER, host=FAR_ADDRESS, within=network.within_far))
        near = stack.enter_context(moldau(folder / "near", *_BROKER, host=NEAR_ADDRESS))
        source_is_far = given.far == "source"
        link = Link(*((far, near) if source_is_far else (near, far)), folder)
        loading = LoadClient(program, link.source.bootstrap, network.within_far if source_is_far else ())
        measure(given, network, link, loading, results)


if __name__ == "__main__":
    main()
