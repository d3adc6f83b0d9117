"""The dialogue that is held with the groups of every client: two share, a third joins, one is killed, one leaves.

The members are programs that say what they take (`group_members.py`). In the end each record was taken once: the ranges from the first
offset of a commit to the committed one lie side by side, from 0 to the end of each partition.
"""

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain

import confluent_kafka
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.supervised import Program

PARTITIONS = 6
LIMIT_S = 150.0
STACKS_S = 5.0
JVM_TERMINATED = 128 + 15
PER_SECOND = 150
Ranges = dict[int, list[tuple[int, int]]]


class GroupDialogue:
    """One client's group on a topic of its own; `command` gives the program of a member by its number."""

    def __init__(self, bootstrap: str, name: str, command: Callable[[str, str, int], Sequence[str]]) -> None:
        self.bootstrap = bootstrap
        self.topic, self.group = f"for-{name}", f"of-{name}"
        self._command = command
        self.members: list[Program] = []
        self._gone: list[Program] = []
        self.killed: list[Program] = []
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in self.admin.create_topics([NewTopic(self.topic, PARTITIONS)]).values():
            future.result(LIMIT_S)
        self._stopping = threading.Event()
        self._writing = threading.Event()
        self._writing.set()
        self._written = 0
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    # What is written

    def _write(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        while not self._stopping.is_set():
            if self._writing.is_set():
                producer.produce(self.topic, b"%d" % self._written, partition=self._written % PARTITIONS)
                self._written += 1
            producer.poll(0)
            self._stopping.wait(1 / PER_SECOND)
        assert producer.flush(LIMIT_S) == 0

    def pause_writing(self) -> None:
        """Nothing new comes, and everything is taken: nobody is in the middle of something."""
        self._writing.clear()
        self.wait_until_all_is_committed()

    # Who is there

    def join(self, number: int) -> Program:
        """Start a member."""
        member = Program(self._command(self.topic, self.group, number))
        self.members.append(member)
        return member

    def kill(self, member: Program, *, at_work: bool = True) -> None:
        """SIGKILL; `at_work`: while records come in."""
        if not at_work:
            self.pause_writing()
        member.kill()
        self._writing.set()
        self.members.remove(member)
        self._gone.append(member)
        self.killed.append(member)

    def leave(self, member: Program, *, at_work: bool = True) -> None:
        """SIGTERM, and it says goodbye."""
        if not at_work:
            self.pause_writing()
        member.terminate()
        assert member.wait(LIMIT_S) in (0, JVM_TERMINATED), member.lines
        if not at_work:
            self._writing.set()
        self.members.remove(member)
        self._gone.append(member)

    def shares(self) -> list[list[int]]:
        """The partitions of each member, if the group is stable and all are given."""
        try:
            found = self.admin.describe_consumer_groups([self.group])[self.group].result(LIMIT_S)
        except KafkaException as error:  # librdkafka does not ask for the coordinator again
            if error.args[0].code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                return []
            raise
        if found.state != ConsumerGroupState.STABLE:
            return []
        shares = [sorted(place.partition for place in member.assignment.topic_partitions) for member in found.members]
        return sorted(shares) if sorted(chain(*shares)) == list(range(PARTITIONS)) else []

    def wait_for_shares(self, *sizes: int) -> None:
        """Until the members share the partitions so."""
        deadline = time.monotonic() + LIMIT_S
        while sorted(map(len, self.shares())) != sorted(sizes):
            self._check(deadline, f"{sizes} are not shared: {self.shares()}")

    def wait_until_all_is_committed(self) -> None:
        """The group's offsets are the ends of the partitions."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group}
        consumer = confluent_kafka.Consumer(settings)
        places = [TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
        deadline = time.monotonic() + LIMIT_S
        while True:
            self.ends = [consumer.get_watermark_offsets(place, timeout=LIMIT_S)[1] for place in places]
            committed = [place.offset for place in consumer.committed(places, LIMIT_S)]
            if committed == self.ends:
                break
            self._check(deadline, f"committed {committed} of {self.ends}")
        consumer.close()

    def _check(self, deadline: float, what: str) -> None:
        time.sleep(0.05)
        ended = [member.lines[-3:] for member in self.members if member.poll() is not None]
        assert not ended, f"{self.group}: a member has ended by itself: {ended}"
        assert time.monotonic() < deadline, f"{self.group}: {what}\n{self._everything()}"

    def _everything(self) -> str:
        """How the brokers see a group that does not get on, what its members have said, and where the threads of those in Python are."""
        found = self.admin.describe_consumer_groups([self.group])[self.group].result(LIMIT_S)
        report = [f"{found.state.name}, coordinator {found.coordinator.id}, members {[member.member_id for member in found.members]}"]
        for member in self.members:
            said = member.lines[-3:]
            if self._command(self.topic, self.group, 0)[0] == sys.executable:
                member.send(signal.SIGUSR1)
                with suppress(AssertionError):
                    member.wait_for("Current thread", STACKS_S)
                time.sleep(STACKS_S / 10)  # the rest of it
                said = member.lines[-80:]
            report.append("".join(said))
        return "\n".join(report)

    def end(self) -> None:
        """Stop the members and the writer, whatever happened."""
        self._stopping.set()
        self._writer.join()
        for member in list(self.members):
            self.kill(member)

    # What was taken

    def check_that_each_record_was_taken_once(self) -> None:
        """Of a member that was killed between a commit and its word about it, or is unsure, the last range counts if it is needed."""
        sure, unsure, possible = self._ranges("took"), self._ranges("unsure"), self._ranges("taking", self.killed)
        for partition, end in enumerate(self.ends):
            at = 0
            ranges = iter(sorted(sure[partition]))
            follow = next(ranges, None)
            while at < end:
                if follow is not None and follow[0] == at:
                    at, follow = follow[1], next(ranges, None)
                else:
                    unsaid = [last for first, last in possible[partition] + unsure[partition] if first == at]
                    assert unsaid, f"{self.group}, partition {partition}: nobody took {at}, or two took it; next is {follow}"
                    at = unsaid[-1]
            assert follow is None, f"{self.group}, partition {partition}: {follow} was taken twice"

    def _ranges(self, word: str, members: Sequence[Program] | None = None) -> Ranges:
        found: Ranges = {partition: [] for partition in range(PARTITIONS)}
        for member in self._gone + self.members if members is None else members:
            for line in member.lines:
                if said := re.match(rf"{word} (\d+) (\d+)(?: (\d+))?$", line):
                    partition, first = int(said[1]), int(said[2])
                    found[partition].append((first, int(said[3] or first + 1)))
        return found
