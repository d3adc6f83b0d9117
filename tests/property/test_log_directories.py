"""Whatever is done to a broker's log directories, a crash at any moment takes no partition, no topic id, no flushed record, and brings
nothing back that was deleted.

Any sequence of creations, appends, flushes, deletions, re-creations under another id, moves between directories, checkpoints, full disks,
clean restarts and crashes is played on a manager over a forgetful disk and on a plain dictionary.
"""

from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.log.verify import verify
from moldau.model.errors import StorageError
from moldau.model.identity import TopicPartition
from moldau.model.steps import drain
from moldau.testing.disk import ForgetfulDisk
from support.log_moves import copy_all, made, settle, take_over
from support.logs import CLUSTER, NOW_MS, append_values, flush, values_of
from support.sizes import sized

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b-1"]), st.integers(0, 2))
CONFIG = LogConfig(segment_bytes=600, file_delete_delay_ms=100)


class PowerCutError(Exception):
    """In the middle of a change."""


class Model:
    """A partition as it should be: its topic's id, what is flushed, what is written."""

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.flushed: list[bytes] = []
        self.written: list[bytes] = []


class DirectoriesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = ForgetfulDisk()
        self.random = Random(0)
        self.model: dict[TopicPartition, Model] = {}
        self.content = 0
        self.now_ms = NOW_MS

    @initialize(count=st.integers(1, 2))
    def begin(self, count: int) -> None:
        self.paths = [f"/disk{number}/data" for number in range(count)]
        self.start()

    def start(self) -> None:
        self.manager = LogManager(
            self.disk,
            self.paths,
            CONFIG,
            broker_id=0,
            cluster_id=CLUSTER,
            random_bytes=self.random.randbytes,
            topic_config=lambda _topic: CONFIG,
        )
        self.manager.start(self.now_ms)

    @rule(key=PARTITIONS, fresh_id=st.booleans())
    def create(self, key: TopicPartition, fresh_id: bool) -> None:
        known = self.model.get(key)
        topic_id = self.random.randbytes(16) if fresh_id or known is None else known.topic_id
        self.manager.create(key, topic_id, CONFIG, self.now_ms)
        if known is None or known.topic_id != topic_id:
            self.model[key] = Model(topic_id)

    @rule(key=PARTITIONS, size=st.integers(0, 150), flushed=st.booleans())
    def append(self, key: TopicPartition, size: int, flushed: bool) -> None:
        log = self.manager.get(key)
        if log is None:
            return
        self.content += 1
        value = b"%d " % self.content + b"x" * size
        append_values(log, value)
        self.model[key].written.append(value)
        if flushed:
            flush(log)
            self.model[key].flushed = list(self.model[key].written)

    @rule(keys=st.sets(PARTITIONS, max_size=3))
    def delete(self, keys: set[TopicPartition]) -> None:
        assert self.manager.delete(sorted(keys), self.now_ms) == []
        for key in keys:
            self.model.pop(key, None)

    @rule(key=PARTITIONS, to=st.integers(0, 1))
    def move(self, key: TopicPartition, to: int) -> None:
        """Begin to move it to a directory, cancel that, or neither."""
        if key in self.model:
            self.manager.futures.begin(key, self.paths[to % len(self.paths)], self.now_ms)

    @rule(size=st.sampled_from([1, 200, 10_000]))
    def copy(self, size: int) -> None:
        for key in self.manager.futures.moving():
            future = made(self.manager, key, self.now_ms)
            self.manager.futures.copy(future, size, self.now_ms)
            assert self.manager.futures.holds(future)

    @rule()
    def settle(self) -> None:
        for key in self.manager.futures.moving():
            settle(self.manager, copy_all(self.manager, key, now_ms=self.now_ms), self.now_ms)

    @rule()
    def take_over(self) -> None:
        for key in self.manager.futures.moving():
            assert take_over(self.manager, key, self.now_ms) is self.manager.get(key)

    @rule(seed=st.integers(0), operations=st.integers(1, 80))
    def crash_while_logs_move(self, seed: int, operations: int) -> None:
        """A power cut at any operation of the disk."""
        left = operations

        def cut(operation: str, path: str) -> bool:
            nonlocal left
            left -= 1
            if left <= 0:
                raise PowerCutError
            return False

        self.disk.fail = cut
        try:
            for key in self.manager.futures.moving():
                take_over(self.manager, key, self.now_ms)
            drain(self.manager.remove_due(self.now_ms))
        except PowerCutError:
            pass
        finally:
            self.disk.fail = None
        self.crash(seed)

    @rule(later_ms=st.sampled_from([0, 50, 1000]))
    def keep_house(self, later_ms: int) -> None:
        self.now_ms += later_ms
        drain(self.manager.checkpoint())
        drain(self.manager.apply_retention(self.now_ms))
        drain(self.manager.remove_due(self.now_ms))

    @rule(room=st.integers(0, 200))
    def fill_the_disk(self, room: int) -> None:
        """Only what needs no space may still be done, and nothing is lost."""
        self.disk.capacity = self.disk.used() + room
        for key, log in list(self.manager.logs()):
            try:
                append_values(log, b"too much" * 40)
            except StorageError as error:
                self.manager.storage_failed(key, error)
            else:
                self.model[key].written.append(b"too much" * 40)
        drain(self.manager.checkpoint())
        self.disk.capacity = None

    @rule()
    def restart(self) -> None:
        self.manager.shutdown()
        for model in self.model.values():
            model.flushed = list(model.written)
        assert [str(finding) for path in self.paths for finding in verify(self.disk, path, records=True)] == []
        self.start()

    @rule(seed=st.integers(0))
    def crash(self, seed: int) -> None:
        self.disk.crash(Random(seed))
        self.start()
        for key, model in self.model.items():
            log = self.manager.get(key)
            assert log is not None, (key, self.manager.problem(key))
            left = values_of(log)
            assert left[: len(model.flushed)] == model.flushed
            assert left == model.written[: len(left)]
            model.written = model.written[: len(left)]

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "manager"):
            return
        assert set(self.manager.partitions()) == set(self.model)
        for key, model in self.model.items():
            assert self.manager.topic_id(key) == model.topic_id
            log = self.manager.get(key)
            assert log is not None
            assert values_of(log) == model.written


DirectoriesMachine.TestCase.settings = settings(max_examples=sized(25, 600), stateful_step_count=30, deadline=None)
TestLogDirectories = DirectoriesMachine.TestCase
