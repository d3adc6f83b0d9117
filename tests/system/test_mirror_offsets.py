"""Committed offsets are translated exactly, for every position of compacted and transactional topics (mission F3)."""

import asyncio
from enum import Enum
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Where

from moldau.client.partition_requests import LATEST
from moldau.mirror import catalog
from moldau.mirror.following.merge_state import MergeState
from moldau.mirror.merge.positions import Key
from moldau.mirror.merge.runs import OFFSETS
from moldau.mirror.operator import Operator, operate
from moldau.mirror.plan.file import parse_plan
from moldau.mirror.reading import list_offset
from moldau.mirror.translation.groups import group_offsets
from moldau.mirror.translation.search import combined
from moldau.mirror.translation.translate import Translated, translate
from moldau.model.identity import TopicPartition
from moldau.testing import Broker
from support.console import Console
from support.mirror_thread import MirrorThread, wait_for
from support.mirror_world import Seen, committed_end, mirror_text

pytestmark = pytest.mark.system

POSITIONS = 1_000
TOPICS = {"compacted": 5, "transactional": 15}
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "log.cleaner.backoff.ms": 100}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": 1_048_576, "min.cleanable.dirty.ratio": 0.01}


class Written:
    """Where records were stored in the source, by value."""

    def __init__(self) -> None:
        self.offsets: dict[bytes, int] = {}
        self.aborted: set[tuple[int, int]] = set()
        """Partition and offset in the transactional topic."""
        self._places: dict[bytes, tuple[int, int]] = {}

    def note(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        value, offset = message.value(), message.offset()
        assert isinstance(value, bytes)
        assert offset is not None
        self.offsets[value] = offset
        partition = message.partition()
        assert partition is not None
        self._places[value] = partition, offset

    def abort(self, values: list[bytes]) -> None:
        """These were aborted."""
        self.aborted.update(self._places[value] for value in values)


def write_compacted(bootstrap: str, random: Random, written: Written) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 7})
    for number in range(2_000):
        partition = random.randrange(TOPICS["compacted"])
        producer.produce("compacted", f"c{number}".ljust(4_000), str(random.randrange(100)), partition=partition, on_delivery=written.note)
        producer.poll(0)
    producer.flush()


def write_transactions(bootstrap: str, random: Random, written: Written) -> None:
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "w", "linger.ms": 0})
    writer.init_transactions()
    for number in range(150):
        writer.begin_transaction()
        values = [f"t{number}/{each}".encode() for each in range(random.randint(1, 6))]
        for value in values:
            writer.produce("transactional", value, partition=random.randrange(TOPICS["transactional"]), on_delivery=written.note)
        if random.random() < 0.3:
            writer.flush()
            writer.abort_transaction()
            written.abort(values)
        else:
            writer.commit_transaction()


class Kind(Enum):
    """What a position is at."""

    RECORD = 0
    COMPACTED = 1
    ABORTED = 2
    MARKER = 3
    END = 4


def kind_of(where: TopicPartition, offset: int, mirrored: Seen, written: Written) -> Kind:
    there = {written.offsets[each[2]] for each in mirrored}
    if offset in there:
        return Kind.RECORD
    if offset > max(there):
        return Kind.END
    if where.topic == "compacted":
        return Kind.COMPACTED
    return Kind.ABORTED if (where.partition, offset) in written.aborted else Kind.MARKER


def next_value(records: Seen, offset: int, among: set[bytes]) -> bytes | None:
    """What a reader of committed records gets there."""
    return next((each[2] for each in records if each[0] >= offset and each[2] in among), None)


def expected_place(mirrored: Seen, source_offsets: dict[bytes, int], offset: int) -> int:
    """By a look at every record of the target's partition."""
    places = [(source_offsets[each[2]], int(each[0])) for each in mirrored]
    return next((target for source, target in places if source >= offset), places[-1][1] + 1)


def test_positions_of_compacted_and_transactional_topics(tmp_path: Path) -> None:
    random = Random(5)
    with Broker(settings=SETTINGS) as source, Broker(settings=SETTINGS) as target:
        # a topic with gaps of compaction, and one with markers and aborted records
        source.create_topic("compacted", TOPICS["compacted"], COMPACTED)
        source.create_topic("transactional", TOPICS["transactional"])
        written = Written()
        offsets = written.offsets
        write_compacted(source.bootstrap_servers, random, written)

        def seen(bootstrap: str, prefix: str = "") -> dict[TopicPartition, Seen]:
            return {
                TopicPartition(topic, number): records
                for topic, count in TOPICS.items()
                for number, records in committed_end(bootstrap, f"{prefix}{topic}", range(count)).items()
            }

        wait_for(lambda: sum(map(len, seen(source.bootstrap_servers).values())) < 0.8 * len(offsets), "nothing is compacted")
        text = mirror_text("merge", source.bootstrap_servers, target.bootstrap_servers, topics=[*TOPICS], more="sync.configs = false")
        plan = parse_plan(text, "mirror.toml")
        file = tmp_path / "mirror.toml"
        file.write_text(text)

        def is_mirrored() -> bool:
            newest = {where: records[-1][2] for where, records in seen(source.bootstrap_servers).items() if records}
            there = seen(target.bootstrap_servers, "east.")
            return all(there[where] and there[where][-1][2] == value for where, value in newest.items())

        async def end_of_runs(operator: Operator) -> int:
            return await list_offset(operator.target, OFFSETS, LATEST)

        with MirrorThread([text]):
            wait_for(lambda: {f"east.{each}" for each in TOPICS} <= set(target.topics()) and is_mirrored(), "not all is mirrored")
            middle = operate(plan, "", 60, end_of_runs)
            write_transactions(source.bootstrap_servers, random, written)
            wait_for(is_mirrored, "the transactions are not mirrored")
        mirrored = seen(target.bootstrap_servers, "east.")

        # any position, between records and on them, at the start and at the end
        ends = {where: max(offsets[each[2]] for each in records) + 1 for where, records in mirrored.items()}
        rounds = [{where: random.randint(0, end) for where, end in ends.items()} for _ in range(POSITIONS // len(ends))]
        kinds = {kind: sum(kind == kind_of(*each, mirrored[each[0]], written) for one in rounds for each in one.items()) for kind in Kind}
        assert sum(kinds.values()) == POSITIONS
        assert min(kinds.values()) >= 5, f"of each kind of position there are some: {kinds}"

        async def translated(operator: Operator) -> list[list[Translated]]:
            sources = operator.sources
            return await asyncio.gather(*(translate(plan, plan.selection, operator.target, sources, {"east": each}) for each in rounds))

        translated_rounds = operate(plan, "", 60, translated)
        for wanted, found in zip(rounds, translated_rounds, strict=True):
            assert {each.target: each.offset for each in found} == {
                TopicPartition(f"east.{where.topic}", where.partition): expected_place(mirrored[where], offsets, offset)
                for where, offset in wanted.items()
            }

        # a reader that continues there gets the record that it would get in the source, of which compaction may have left less since
        now = seen(source.bootstrap_servers)
        for wanted, found in zip(rounds, translated_rounds, strict=True):
            places = {each.target: each.offset for each in found}
            for where, offset in wanted.items():
                place = places[TopicPartition(f"east.{where.topic}", where.partition)]
                assert place is not None
                left = {each[2] for each in now[where]}
                assert next_value(mirrored[where], place, left) == next_value(now[where], offset, left), (where, offset, place)

        # the same by the newest runs in memory, and by a look-up of those from before them
        async def by_state(operator: Operator) -> None:
            topics = await catalog.look(operator.sources["east"])
            end = await end_of_runs(operator)
            state, whole = (MergeState(plan.name, operator.target, tail) for tail in (end - middle, end))
            await state.read_on()
            await whole.read_on()
            places = {
                (Key(plan.name, topics.cluster_id, topics.topics[where.topic].topic_id, where.partition), offset): where
                for each in rounds
                for where, offset in each.items()
            }
            missing = [each for each in places if state.find(*each) is None]
            assert 0 < len(missing) < len(places), "those of the transactions are in memory"
            await state.look_up(missing)
            for (key, offset), where in places.items():
                expected = {TopicPartition(f"east.{where.topic}", where.partition): expected_place(mirrored[where], offsets, offset)}
                for each in (state, whole):
                    found = each.find(key, offset)
                    assert found is not None
                    if found.first >= 0 or offset != each.positions[key].position.offset:
                        assert combined([found.places]) == expected

        operate(plan, "", 60, by_state)

        # the same by a group's committed offsets: shown, and committed in the target
        settings = {"bootstrap.servers": source.bootstrap_servers, "group.id": "billing"}
        consumer = Consumer(settings)
        beyond = ends[TopicPartition("compacted", 0)] + 100
        committed = {where: offset for where, offset in rounds[0].items() if where.topic == "transactional"}
        consumer.commit(
            offsets=[Where(*where, offset) for where, offset in committed.items()] + [Where("compacted", 0, beyond)], asynchronous=False
        )
        consumer.close()
        found = group_offsets(plan, "billing")
        (untranslated,) = [each for each in found if each.offset is None]
        assert untranslated.target == TopicPartition("east.compacted", 0)
        assert f"not up to {beyond} yet" in untranslated.reason
        shown = Console(target.bootstrap_servers)("mirror", "offsets", str(file), "--group", "billing", "--apply", "--json")
        assert shown.code == 8, shown
        assert [(each["topic"], each["partition"], each["offset"]) for each in shown.json["offsets"]] == [
            (*each.target, each.offset) for each in found
        ]
        reader = Consumer(settings | {"bootstrap.servers": target.bootstrap_servers})
        wheres = [Where(*each.target) for each in found if each.offset is not None]
        assert [each.offset for each in reader.committed(wheres)] == [each.offset for each in found if each.offset is not None]
        reader.close()
