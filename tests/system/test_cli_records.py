"""What goes in by `produce` comes out by `consume`: keys, headers, order, formats; and what does not go in is accounted for."""

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.console import MOLDAU, Console, ConsoleInside, end
from support.server import ServerProcess

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # Some records are of 2013: retention would take them.
    with ServerProcess(tmp_path_factory.mktemp("data"), settings={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def moldau(server: ServerProcess) -> Console:
    return Console(server.bootstrap)


@pytest.fixture
def topic(server: ServerProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.name.translate(str.maketrans("[]/ ", "----"))[:200]
    ConsoleInside(server.bootstrap).ok("topic", "create", name, "--partitions", "1")
    return str(name)


def test_lines_come_back_in_order(moldau: Console, topic: str, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(5000)]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines))
    sent = moldau.ok("produce", topic, str(file))
    assert (sent.out, sent.err) == ("", "5,000 records sent\n")
    assert moldau.ok("consume", topic, "--until-end").lines == lines
    assert moldau.ok("consume", topic, "--max", "3", "--from", "4000").lines == lines[4000:4003]
    assert moldau.ok("consume", topic, "--until-end", "--from", "-2").lines == lines[-2:]
    assert moldau.ok("consume", topic, "--until-end", "--from", "end").lines == []
    assert moldau.ok("consume", topic, "--max", "0").lines == []


@pytest.mark.parametrize("more", [[], ["--until-end"]])
def test_an_offset_beyond_the_end_is_refused(moldau: Console, topic: str, more: list[str]) -> None:
    moldau.ok("produce", topic, text="a\nb\n")
    done = moldau("consume", topic, "--from", "1000", *more)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"Error: partition {topic}-0 has offsets 0 to 2, not 1000\n"


def test_a_time_before_1970_is_the_beginning(moldau: Console, topic: str) -> None:
    moldau.ok("produce", topic, text="a\nb\n")
    assert moldau.ok("consume", topic, "--from", "1969-12-31T23:59:59.999Z", "--until-end").lines == ["a", "b"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("format_", ["value", "json"])
def test_records_that_cannot_be_written_end_in_one_line(moldau: Console, topic: str, format_: str) -> None:
    moldau.ok("produce", topic, text="a\nb\n")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [MOLDAU, "consume", topic, "--until-end", "--format", format_],
            stdout=full,
            stderr=subprocess.PIPE,
            env=moldau.environment,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"Error: cannot write the output: no space left on device\n")


def damage(server: ServerProcess, topic: str, text: bytes) -> None:
    """Change one byte of a value on the disk below a running broker."""
    (segment,) = (server.data / f"{topic}-0").glob("*.log")
    with segment.open("r+b") as file:
        at = file.read().index(text)
        file.seek(at)
        file.write(b"X")


def test_a_changed_value_is_never_printed(moldau: Console, server: ServerProcess, topic: str) -> None:
    for line in ("first\n", "second\n", "third\n"):
        moldau.ok("produce", topic, text=line)
    damage(server, topic, b"second")
    done = moldau("consume", topic, "--until-end")
    assert (done.code, done.lines) == (1, ["first"])
    assert done.err == f"Error: CORRUPT_MESSAGE: partition {topic}-0: the batch at offset 1 is damaged: its checksum does not match\n"
    skipped = moldau.ok("consume", topic, "--until-end", "--skip-damaged", "--group", "g")
    assert skipped.lines == ["first", "third"]
    assert skipped.err.splitlines() == [
        f"partition {topic}-0: the batch at offset 1 is damaged: its checksum does not match; 1 offset skipped, continuing at 2",
        "1 damaged place skipped",
    ]
    assert moldau.ok("consume", topic, "--until-end", "--group", "g").lines == []


def test_a_reader_of_committed_records_begins_and_ends_before_an_open_transaction(moldau: Console, topic: str) -> None:
    """The end of the log is beyond what it may see: to begin there was beyond the end, and an error."""
    committed = ["--isolation-level", "read_committed", "--until-end"]
    with moldau_client(moldau) as producer:
        producer.produce(topic, b"seen", timestamp=1_357_016_400_000)
    producer = Producer({"bootstrap.servers": moldau.environment["MOLDAU_BOOTSTRAP"], "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush()
    assert moldau.ok("consume", topic, *committed).lines == ["seen"]
    for begin in (["--from", "end"], ["--since", "1h"], ["--from", "-0"]):
        assert moldau.ok("consume", topic, *begin, *committed).lines == []
    producer.abort_transaction()
    assert moldau.ok("consume", topic, *committed).lines == ["seen"]
    assert moldau.ok("consume", topic, "--from", "1", *committed).lines == []


def test_records_between_two_times(moldau: Console, topic: str) -> None:
    with moldau_client(moldau) as producer:
        for hour in range(6):
            producer.produce(topic, b"%d" % hour, timestamp=1_357_016_400_000 + hour * 3_600_000)
    between = ["--since", "2013-01-01T07:00", "--until", "2013-01-01T09:00:00Z"]
    assert moldau.ok("consume", topic, *between).lines == ["2", "3"], "--until ends without --until-end"
    assert moldau.ok("consume", topic, "--since", "@1357030800000", "--until", "1h").lines == ["4", "5"]
    assert moldau.ok("consume", topic, "--since", "1h", "--until-end").lines == []
    assert moldau.ok("consume", topic, "--until", "2013-01-01").lines == []
    wrong = moldau("consume", topic, "--since", "1h", "--from", "end")
    assert (wrong.code, "--from and --since" in wrong.err) == (2, True)
    assert moldau("consume", topic, "--since", "yesterday").code == 2


@contextlib.contextmanager
def moldau_client(moldau: Console) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": moldau.environment["MOLDAU_BOOTSTRAP"]})
    yield producer
    assert not producer.flush(30)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(moldau: Console, topic: str, codec: str) -> None:
    lines = [f"{codec} {number}" for number in range(500)]
    moldau.ok("produce", topic, "--compression", codec, text="\n".join(lines))
    assert moldau.ok("consume", topic, "--until-end").lines == lines


@pytest.mark.parametrize("options", [["--acks", "0"], ["--acks", "1"], ["--acks", "all"], ["--idempotent"], ["--no-idempotent"]])
def test_every_kind_of_acknowledgement(moldau: Console, topic: str, options: list[str]) -> None:
    assert moldau.ok("produce", topic, *options, text="a\nb\n").err == "2 records sent\n"
    assert moldau.ok("consume", topic, "--max", "2").lines == ["a", "b"]


def test_keys_headers_and_everything_else_as_json(moldau: Console, topic: str) -> None:
    moldau.ok("produce", topic, "--key-separator", r"\t", "-H", "source=test", "-H", "n=1", text="k\tv\n\tempty key\n")
    first, second = moldau.ok("consume", topic, "--until-end", "--format", "json").json_lines
    assert first.pop("timestamp") > 1_600_000_000_000
    assert first == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp_type": "create",
        "key": "k",
        "value": "v",
        "headers": [["source", "test"], ["n", "1"]],
    }
    assert (second["offset"], second["key"], second["value"]) == (1, "", "empty key")
    assert moldau.ok("consume", topic, "--until-end", "--format", "%o|%k|%s|%h").lines == [
        "0|k|v|source=test,n=1",
        "1||empty key|source=test,n=1",
    ]


def test_equal_keys_share_a_partition(moldau: Console) -> None:
    moldau.ok("topic", "create", "keyed", "--partitions", "4")
    lines = [json.dumps({"tail": f"N{number % 20}", "n": number}) for number in range(400)]
    moldau.ok("produce", "keyed", "--format", "json", "--key-field", "tail", text="\n".join(lines))
    records = moldau.ok("consume", "keyed", "--until-end", "--format", "json").json_lines
    places: dict[str, set[int]] = {}
    for record in records:
        places.setdefault(record["key"], set()).add(record["partition"])
    assert len(records) == 400
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(set.union(*places.values())) == 4
    (one,) = places["N3"]
    numbers = [json.loads(line)["n"] for line in moldau.ok("consume", "keyed", "--until-end", "--partition", str(one)).lines]
    assert [number for number in numbers if number % 20 == 3] == list(range(3, 400, 20)), "order is kept within a key"


def test_csv_rows_become_json(moldau: Console, topic: str) -> None:
    rows = 'id,name\r\n1,"Müller, ""Ed"""\r\n2,"two\nlines"\r\n'
    moldau.ok("produce", topic, "--format", "csv", "--key-field", "id", text=rows)
    records = moldau.ok("consume", topic, "--until-end", "--format", "json").json_lines
    assert [(r["key"], json.loads(r["value"])) for r in records] == [
        ("1", {"id": "1", "name": 'Müller, "Ed"'}),
        ("2", {"id": "2", "name": "two\nlines"}),
    ]


def test_a_bad_line_stops_and_nothing_after_it_is_sent(moldau: Console, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"n": 1}\n{"n": 2}\n{"n": \n{"n": 4}\n')
    done = moldau("produce", topic, str(file), "--format", "json")
    assert done.code == 1
    assert done.err.splitlines() == [
        f"{file}:3: not JSON: Expecting value at column 6",
        "2 records sent, stopped at the first bad line",
    ]
    assert moldau.ok("consume", topic, "--until-end").lines == ['{"n": 1}', '{"n": 2}']


def test_bad_lines_are_counted_when_asked(moldau: Console, topic: str) -> None:
    done = moldau.ok("produce", topic, "--format", "json", "--on-error", "skip", text="1\nx\n2\n\ny\n3\n")
    assert [line.split(":")[:2] for line in done.err.splitlines()[:-1]] == [["stdin", "2"], ["stdin", "5"]]
    assert done.err.splitlines()[-1] == "3 records sent, 2 bad lines skipped"
    assert moldau.ok("consume", topic, "--until-end").lines == ["1", "2", "3"]


def test_failed_deliveries_are_told_by_partition_and_reason(moldau: Console) -> None:
    moldau.ok("topic", "create", "small", "--partitions", "1", "--config", "max.message.bytes=1000")
    done = moldau("produce", "small", "--no-idempotent", text=b"a\n" + b"x" * 5000 + b"\n")
    assert done.code == 1
    assert "small-0: " in done.err
    assert "not delivered: MSG_SIZE_TOO_LARGE" in done.err
    assert "failed" in done.err.splitlines()[-1]


def many_with_a_large_one(records: int, large_at: int) -> bytes:
    return b"".join((b"x" * 5000 if number == large_at else b"%d" % number) + b"\n" for number in range(records))


def test_a_failed_delivery_stops_and_with_skip_it_does_not(moldau: Console) -> None:
    for name in ("stop", "skip"):
        moldau.ok("topic", "create", f"small-{name}", "--partitions", "1", "--config", "max.message.bytes=1000")
    text = many_with_a_large_one(400_000, large_at=10)
    done = moldau("produce", "small-stop", text=text)
    last = done.err.splitlines()[-1]
    assert done.code == 1
    assert re.fullmatch(r"[\d,]+ records? sent, [\d,]+ failed, stopped at the first failed delivery", last), last
    assert len(moldau.ok("consume", "small-stop", "--until-end").lines) < 399_999
    done = moldau("produce", "small-skip", "--on-error", "skip", text=text)
    assert (done.code, done.err.splitlines()[-1]) == (1, "399,999 records sent, 1 failed")
    assert len(moldau.ok("consume", "small-skip", "--until-end").lines) == 399_999


def test_partitions_that_are_not_there(moldau: Console, topic: str) -> None:
    for command in (["produce", topic, "--partition", "1"], ["consume", topic, "--partition", "1"]):
        done = moldau(*command)
        assert (done.code, "has partitions 0 to 0, not 1" in done.err) == (2, True)


def test_a_topic_comes_to_be_by_producing_to_it_which_is_said_once(moldau: Console) -> None:
    """Claim: a misspelt name does not become a topic in silence; standard output stays empty."""
    first, second = (moldau.ok("produce", "sudden", text=text) for text in ("here\n", ""))
    assert (first.out, first.err.splitlines()) == ("", ["created topic sudden with 1 partition", "1 record sent"])
    assert (second.out, second.err.splitlines()) == ("", ["0 records sent"])
    assert moldau.ok("consume", "sudden", "--until-end").lines == ["here"]


def test_bytes_go_through_a_pipe_unchanged(moldau: Console, topic: str) -> None:
    value = bytes(number for number in range(256) if number not in b"\r\n")
    moldau.ok("produce", topic, text=value + b"\n")
    assert moldau.ok("consume", topic, "--until-end").raw == value + b"\n"
    (record,) = moldau.ok("consume", topic, "--until-end", "--format", "json").json_lines
    assert list(record["value"]) == ["base64"]


def test_tombstones_and_times(moldau: Console, server: ServerProcess, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap})
    for day, value in enumerate([b"first", None, b"third"], 1):
        producer.produce(topic, value, b"k", timestamp=1_356_998_400_000 + (day - 1) * 86_400_000)
    assert producer.flush(30) == 0
    assert moldau.ok("consume", topic, "--until-end").lines == ["first", "null", "third"]
    shown = moldau.ok("consume", topic, "--until-end", "--format", "json", "--from", "2013-01-02").json_lines
    assert [(record["value"], record["timestamp"]) for record in shown] == [(None, 1_357_084_800_000), ("third", 1_357_171_200_000)]
    assert moldau.ok("consume", topic, "--until-end", "--from", "@1357084800001").lines == ["third"]
    assert moldau.ok("consume", topic, "--until-end", "--from", "2013-06-01T00:00:00Z").lines == []


def test_an_offset_that_never_was_is_told(moldau: Console, topic: str) -> None:
    moldau.ok("produce", topic, text="a\n")
    done = moldau("consume", topic, "--from", "7")
    assert (done.code, done.err) == (1, f"Error: partition {topic}-0 has offsets 0 to 1, not 7\n")


def test_offsets_that_are_gone_are_told_and_passed_over(moldau: Console, topic: str) -> None:
    moldau.ok("produce", topic, text="a\nb\nc\n")
    moldau.ok("topic", "trim", topic, "--before", "2")
    done = moldau.ok("consume", topic, "--from", "0", "--until-end")
    assert done.lines == ["c"]
    assert "records before offset 2 no longer exist" in done.err


def test_it_waits_for_more_until_it_is_interrupted(moldau: Console, topic: str) -> None:
    consumer = moldau.start("consume", topic)
    assert consumer.stdout is not None
    moldau.ok("produce", topic, text="one\n")
    assert consumer.stdout.readline() == "one\n"
    moldau.ok("produce", topic, text="two\n")
    assert consumer.stdout.readline() == "two\n"
    assert end(consumer, signal.SIGINT) == (0, "", "")


def test_a_reader_that_goes_away_ends_it_quietly(moldau: Console, topic: str) -> None:
    moldau.ok("produce", topic, text="\n".join(f"a line of some length, number {number}" for number in range(20_000)))
    command = f"'{MOLDAU}' consume '{topic}' | head -2"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=moldau.environment, timeout=60, check=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (2, "")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_producer_sends_what_it_has_read(moldau: Console, topic: str, how: signal.Signals) -> None:
    producer = moldau.start("produce", topic)
    assert producer.stdin is not None
    producer.stdin.write("one\ntwo\n")
    producer.stdin.flush()
    deadline = time.monotonic() + 30
    while moldau.ok("consume", topic, "--until-end").lines != ["one", "two"]:
        assert time.monotonic() < deadline
    producer.send_signal(how)
    assert producer.wait(30) == 130
    assert producer.stderr is not None
    assert producer.stderr.read().splitlines() == ["2 records sent", "interrupted"]
    for stream in (producer.stdin, producer.stdout, producer.stderr):
        assert stream is not None
        stream.close()


def test_a_signal_while_nobody_acknowledges_ends_the_wait_and_counts(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        moldau = Console(server.bootstrap)
        moldau.ok("topic", "create", "t", "--partitions", "1")
        producer = moldau.start("produce", "t")
        assert producer.stdin is not None
        producer.stdin.write("one\n")
        producer.stdin.flush()
        deadline = time.monotonic() + 30
        while moldau.ok("consume", "t", "--until-end").lines != ["one"]:
            assert time.monotonic() < deadline
        server.suspend()
        try:
            producer.stdin.write("two\nthree\n")
            producer.stdin.close()
            producer.stdin = None
            assert producer.stderr is not None
            assert "acknowledged" in producer.stderr.readline(), "it waits, and says so"
            code, _, err = end(producer, signal.SIGTERM)
        finally:
            server.resume()
    assert code == 130
    assert err.splitlines()[-2:] == ["1 record sent, 2 failed", "interrupted"]


def test_a_broker_that_stops_under_the_consumer_is_told(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        moldau = Console(server.bootstrap)
        moldau.ok("topic", "create", "t", "--partitions", "1")
        moldau.ok("produce", "t", text="one\n")
        consumer = moldau.start("consume", "t", "--timeout", "1")
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == "one\n"
        server.kill()
        out, err = consumer.communicate(timeout=60)
    assert (consumer.returncode, out) == (1, "")
    assert err.startswith(f"Error: cannot connect to {server.bootstrap}: ")
