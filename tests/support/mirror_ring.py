"""Clusters with mirrors from each to the next, one topic with the same name in all of them; everything is a process that may be killed."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from moldau.testing import Cluster
from support.mirror_world import PARTITIONS, SETTINGS, MirrorProgram, committed_end, mirror_text

TOPIC = "orders"


class Ring:
    """See the module. Each cluster has one broker, and its mirror's source is the cluster before it."""

    def __init__(self, directory: Path, names: Sequence[str], partitioning: str) -> None:
        self.clusters = {name: Cluster(1, directory=directory / name, settings=SETTINGS) for name in names}
        self._sources = {names[(index + 1) % len(names)]: name for index, name in enumerate(names)}
        self._more = f'partitioning = "{partitioning}"'
        self._directory = directory
        self._mirrors: list[MirrorProgram] = []

    def __enter__(self) -> Self:
        for cluster in self.clusters.values():
            cluster.start()
            cluster.create_topic(TOPIC, partitions=PARTITIONS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for mirror in self._mirrors:
            if mirror.running:
                mirror.kill()
        for cluster in self.clusters.values():
            cluster.close()

    def start_mirrors(self) -> None:
        """One for each cluster."""
        for target, source in self._sources.items():
            servers = [self.clusters[each].bootstrap_servers for each in (source, target)]
            file = self._directory / f"to-{target}.toml"
            file.write_text(mirror_text("merge", *servers, name=f"to-{target}", source_name=source, naming="topic", more=self._more))
            self._mirrors.append(MirrorProgram(file))
            self._mirrors[-1].start()

    def kill_one(self, drawn: Random) -> None:
        """A mirror or a broker, which is started again."""
        all_of_them: list[MirrorProgram | Cluster] = [*self._mirrors, *self.clusters.values()]
        struck = drawn.choice(all_of_them)
        if isinstance(struck, Cluster):
            struck.kill(*struck.broker_ids)
            struck.restart(*struck.broker_ids)
        else:
            struck.kill()
            struck.start()

    def found(self, name: str) -> Counter[bytes]:
        """The values that a cluster has, as committed readers see them."""
        seen = committed_end(self.clusters[name].bootstrap_servers, TOPIC)
        return Counter(each[2] for records in seen.values() for each in records)
