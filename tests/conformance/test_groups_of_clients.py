"""Groups of every mainstream client work as they do against Apache Kafka (mission B3, B4, C2).

For each of them: two members share the partitions, a third joins, one is killed, one leaves, while records come in without pause; every
record is taken once between them, by committed offsets. All groups are at work at the same time, on one broker and on three.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from support.brokers import bootstrap_of
from support.group_dialogue import PARTITIONS, GroupDialogue
from support.java import compile_java, java_command
from support.maven import kafka_libraries
from support.node import node_modules
from support.supervised import Program

pytestmark = [pytest.mark.system, pytest.mark.alone]
"""Up to 27 members run at a time, and sessions last 10 s."""

HERE = Path(__file__).parent
PYTHON_MEMBER = str(HERE.parent / "support" / "group_members.py")
TEST = "test_a_group_takes_every_record_once"
Command = Callable[[str, str, int], Sequence[str]]
"""Of a member, by topic, group and number."""


def python_member(bootstrap: str, client: str, *more: str, static: bool = False) -> Command:
    def command(topic: str, group: str, number: int) -> list[str]:
        return [sys.executable, "-P", PYTHON_MEMBER, client, bootstrap, topic, group, *more, *([f"member-{number}"] if static else [])]

    return command


def compiled_java_member(classes: Path) -> Path:
    return compile_java(kafka_libraries("4.3.0"), classes, HERE / "java" / "Member.java")


def java_member(bootstrap: str, classes: Path, assignor: str) -> Command:
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Dlog4j2.level=OFF"]
    java = java_command(kafka_libraries("4.3.0"), *quiet, "Member", classes=classes, memory="64m")
    return lambda topic, group, _: [*java, bootstrap, topic, group, assignor]


def kafkajs_member(bootstrap: str) -> Command:
    modules = node_modules(HERE / "kafkajs")
    return lambda topic, group, _: ["env", f"NODE_PATH={modules}", "node", str(HERE / "kafkajs" / "member.js"), bootstrap, topic, group]


def kcat_member(bootstrap: str) -> Command:
    """Kcat says each record as a range of one; it commits by itself, every 100 ms, what it has shown."""
    settings = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "300", "auto.offset.reset": "earliest", "fetch.wait.max.ms": "50"}
    settings |= {"auto.commit.interval.ms": "100"}
    options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    return lambda topic, group, _: ["kcat", "-b", bootstrap, "-u", *options, "-f", "took %p %o\n", "-G", group, topic]


COMMANDS: dict[str, Callable[[str, Callable[[], Path]], Command]] = {
    "confluent-range": lambda bootstrap, _: python_member(bootstrap, "confluent", "range"),
    "confluent-cooperative": lambda bootstrap, _: python_member(bootstrap, "confluent", "cooperative-sticky"),
    "confluent-static": lambda bootstrap, _: python_member(bootstrap, "confluent", "range", static=True),
    "kafka-python": lambda bootstrap, _: python_member(bootstrap, "kafka-python"),
    "aiokafka": lambda bootstrap, _: python_member(bootstrap, "aiokafka"),
    "kcat": lambda bootstrap, _: kcat_member(bootstrap),
    "kafkajs": lambda bootstrap, _: kafkajs_member(bootstrap),
    "java-range": lambda bootstrap, classes: java_member(bootstrap, classes(), "RangeAssignor"),
    "java-cooperative": lambda bootstrap, classes: java_member(bootstrap, classes(), "CooperativeStickyAssignor"),
}


def talk(name: str, dialogue: GroupDialogue) -> None:
    """The dialogue, which is the same for all, but for what static members are there for."""
    one, two = dialogue.join(1), dialogue.join(2)
    dialogue.wait_for_shares(3, 3)
    three = dialogue.join(3)
    dialogue.wait_for_shares(2, 2, 2)
    if name == "confluent-static":
        one = replace_quickly(dialogue, one, [two, three])
    at_work = name != "kcat"  # killed between showing and committing it shows a record twice; asked to leave it drops the one in its hand
    dialogue.kill(one, at_work=at_work)
    dialogue.wait_for_shares(3, 3)
    dialogue.leave(two, at_work=at_work)
    dialogue.wait_for_shares(PARTITIONS)
    dialogue.pause_writing()
    dialogue.leave(three)
    dialogue.check_that_each_record_was_taken_once()


def replace_quickly(dialogue: GroupDialogue, old: Program, others: list[Program]) -> Program:
    """A static member that is back within its session time-out gets its partitions again, and the others notice nothing (KIP-345)."""
    before, shares = [len(assignments(member)) for member in others], dialogue.shares()
    mine = assignments(old)[-1]
    dialogue.kill(old)
    new = dialogue.join(1)
    new.wait_for("assigned", 30)
    assert assignments(new) == [mine]
    assert dialogue.shares() == shares
    assert [len(assignments(member)) for member in others] == before
    return new


def assignments(member: Program) -> list[str]:
    return [line for line in member.lines if line.startswith("assigned")]


def converse(name: str, bootstrap: str, classes: Callable[[], Path]) -> None:
    dialogue = GroupDialogue(bootstrap, name, COMMANDS[name](bootstrap, classes))
    try:
        talk(name, dialogue)
    finally:
        dialogue.end()


@pytest.fixture(scope="module", params=[pytest.param(1, id="one broker", marks=pytest.mark.long), pytest.param(3, id="three brokers")])
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """The dialogues of the clients that were chosen, begun together: most of their time is waiting."""
    brokers = "one broker" if request.param == 1 else "three brokers"
    chosen = {name for name in COMMANDS for item in request.session.items if item.name == f"{TEST}[{brokers}-{name}]"}
    with (
        bootstrap_of(request.param, tmp_path_factory.mktemp("groups"), {}) as bootstrap,
        ThreadPoolExecutor(len(COMMANDS)) as pool,
        ThreadPoolExecutor(1) as compiler,
    ):
        classes = compiler.submit(compiled_java_member, tmp_path_factory.mktemp("classes")).result
        yield {name: pool.submit(converse, name, bootstrap, classes) for name in COMMANDS if name in chosen}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_group_takes_every_record_once(name: str, outcomes: dict[str, Future[None]]) -> None:
    outcomes[name].result()
