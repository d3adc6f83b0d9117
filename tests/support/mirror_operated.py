"""A mirror that operators look at and change while it runs, between two brokers that may answer it what a test wants."""

import re
import threading
from collections.abc import Mapping
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.client.cluster import Cluster as ClusterClient
from moldau.testing import Broker
from support.answering_proxy import AnsweringProxy
from support.console import ConsoleInside, Done
from support.mirror_world import MirrorProgram, committed_end, mirror_text
from support.paper import wait_until

LIMIT_S = 90.0


eventually = partial(wait_until, limit_s=LIMIT_S, pause_s=0.1)


class OperatedMirror:
    """A source and a target in this process, a mirror in another, and `clicks`, which is written all the time."""

    def __init__(self, directory: Path, mode: str, *, configs: Mapping[str, Mapping[str, object]] | None = None, **options: Any) -> None:
        """`configs` of topics of the source; `options` as for `mirror_text`."""
        self.at_source, self.at_target = AnsweringProxy(), AnsweringProxy()
        """What the clusters answer to the mirror; to others they answer themselves."""
        self.source, self.target = (
            Broker(settings={"advertised.listeners": f"PLAINTEXT://{each.address}"}) for each in (self.at_source, self.at_target)
        )
        for broker, proxy in ((self.source, self.at_source), (self.target, self.at_target)):
            broker.start()
            proxy.start(broker.bootstrap_servers)
        for topic in ("orders", "clicks", "web"):
            self.source.create_topic(topic, config=(configs or {}).get(topic))
        self.file = directory / "mirror.toml"
        topics = ["orders", "clicks"]
        self.file.write_text(mirror_text(mode, self.at_source.address, self.at_target.address, topics=topics, **options))
        self.mirror = MirrorProgram(self.file, "1", "--metrics", "127.0.0.1:0", hasty=True)
        self._console = ConsoleInside()
        self._prefix = "east." if mode == "merge" and "naming" not in options else ""
        self._over = threading.Event()
        self._clicks = threading.Thread(target=self._write_clicks)
        self._clicks.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.mirror.running:
            self.mirror.kill()
        self._over.set()
        self._clicks.join()
        self.source.close()
        self.target.close()
        self.at_source.close()
        self.at_target.close()

    def _write_clicks(self) -> None:
        producer = Producer({"bootstrap.servers": self.source.bootstrap_servers, "log_level": 0})
        while not self._over.wait(0.02):
            producer.produce("clicks", b"click", partition=0)
            producer.poll(0)
        producer.purge()  # the source may be down
        producer.flush(LIMIT_S)

    def produce(self, topic: str, *values: str) -> None:
        """Each in a batch of its own: a copy takes whole batches."""
        producer = Producer({"bootstrap.servers": self.source.bootstrap_servers, "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=0)
            assert producer.flush(LIMIT_S) == 0

    def run(self, command: str, *arguments: str) -> Done:
        return self._console("mirror", *command.split(), str(self.file), *arguments)

    def row(self, topic: str) -> dict[str, Any]:
        """As `status` has it; empty without one."""
        rows = self.run("status", "--json").json["partitions"]
        return next((row for row in rows if row["topic"] == topic), {})

    def state(self, topic: str) -> str:
        """Of its partition, or of the topic; empty without one."""
        return str(self.row(topic).get("state", ""))

    def mirrored(self, topic: str) -> list[str]:
        """The values in the target."""
        name = self._prefix + topic
        if name not in self._console("topic", "list", "-b", self.target.bootstrap_servers).out.split():
            return []
        return [value.decode() for _, _, value, *_ in committed_end(self.target.bootstrap_servers, name, [0])[0]]

    def clicks_go_through(self) -> bool:
        """Whether `clicks` is mirrored all the while: what is there now, and more a moment later."""
        consumer = Consumer({"bootstrap.servers": self.target.bootstrap_servers, "group.id": "judge", "log_level": 0})
        clicks = TopicPartition(f"{self._prefix}clicks", 0)
        try:
            before = consumer.get_watermark_offsets(clicks, LIMIT_S)[1]
            eventually(lambda: consumer.get_watermark_offsets(clicks, LIMIT_S)[1] > before + 5, "clicks are mirrored")
        finally:
            consumer.close()
        return True

    def target_id(self) -> str:
        """Cluster id."""
        with ClusterClient(self.target.bootstrap_servers) as target:
            return target.metadata([]).cluster_id or ""

    def metrics(self) -> str:
        (address,) = re.findall(r"metrics at http://(\S+)/metrics", self.mirror.log.read_text())
        connection = HTTPConnection(address, timeout=LIMIT_S)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
