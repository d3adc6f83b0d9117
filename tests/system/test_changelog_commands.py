"""`moldau changelog`: a database is published, replicated, waited for, compared and promoted by commands, with a real broker and stores."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from moldau.changelog import SqliteStore
from moldau.changelog.errors import PublisherFencedError
from moldau.changelog.publisher import Publisher
from moldau.changelog.sqlite import Store
from moldau.changelog.store import WHOLE, Phase, Position
from moldau.cli.application import application
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.testing.broker import Broker
from support.postgres import DROP_FREE_SLOTS, PostgresServer

if TYPE_CHECKING:
    import psycopg

pytestmark = pytest.mark.system

NUMBERS = count(1)
LIMIT_S = 60.0
SCHEMA = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT);
CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT);
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def changelog() -> str:
    return f"shop{next(NUMBERS)}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        database.executemany("INSERT INTO orders VALUES (?, ?)", [(number, f"item {number}") for number in range(100)])
    database.close()
    return path


def moldau(broker: Broker, *words: str) -> Result:
    return CliRunner().invoke(application, ["changelog", *words], env={"MOLDAU_BOOTSTRAP": broker.bootstrap_servers})


def succeeded(broker: Broker, *words: str) -> str:
    done = moldau(broker, *words)
    assert done.exit_code == 0, done.output
    return done.output


@contextmanager
def running(broker: Broker, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process that says what it does; ended by SIGTERM, after which it has to end well."""
    environment = {**os.environ, "MOLDAU_BOOTSTRAP": broker.bootstrap_servers, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "moldau", "changelog", *words, "--log-level", "error"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "until Ctrl-C" in line, (line, process.communicate(timeout=LIMIT_S))
            yield process
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=LIMIT_S)
            assert (process.returncode, errors) == (0, ""), output
        finally:
            process.kill()


def shard_with_rows(broker: Broker, changelog: str, rows: int) -> dict[str, Any]:
    """The status of shard 0 when all rows that its source had at first are in the log, and so many changes of orders."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done = moldau(broker, "status", changelog, "--json")
        (shard,) = [{}] if done.exit_code else json.loads(done.output)["shards"]
        if shard and shard["commit"] and shard["complete"] and shard["tables"].get("orders", {"offsets": 0})["offsets"] >= rows:
            return dict(shard)
    raise AssertionError(f"it is not published: {done.output}")


def write(path: Path, *statements: str) -> None:
    with sqlite3.connect(path, timeout=30) as database:
        for statement in statements:
            database.execute(statement)
    database.close()


def test_a_database_is_published_and_replicated_by_processes_and_waited_for(broker: Broker, changelog: str, source: Path) -> None:
    """A write is read in the replica as soon as `wait` has returned; status has the master, the sizes and the lag."""
    copy = f"sqlite:///{source.parent}/copy.db"
    with running(broker, "publish", changelog, "--from", f"sqlite:///{source}", "--address", "node1:7001"):
        assert "shard 0 is at commit 1" not in moldau(broker, "status", changelog).output
        shard_with_rows(broker, changelog, 100)
        with running(broker, "replicate", changelog, "--to", copy):
            write(source, "INSERT INTO orders VALUES (1000, 'tea')")
            shard = shard_with_rows(broker, changelog, 102)
            said = succeeded(broker, "wait", changelog, "--in", copy, "--commit", str(shard["commit"]))
            assert said.startswith(f"{copy}: shard 0 is at commit ")
    document = json.loads(succeeded(broker, "status", changelog, "--json", "--replica", copy))
    (shard,) = document["shards"]
    (replica,) = document["replicas"]
    assert (shard["shard"], shard["epoch"], shard["master"], shard["complete"]) == (0, 1, "node1:7001", True)
    assert shard["tables"]["orders"]["bytes"] > 0
    assert (replica["store"], replica["phase"]) == (copy, "following")
    shown = succeeded(broker, "status", changelog, "--replica", copy)
    assert "node1:7001" in shown
    assert "following" in shown
    late = moldau(broker, "wait", changelog, "--in", copy, "--commit", "1000", "--timeout", "0.2")
    assert late.exit_code == 3
    assert f"Error: {copy}: after 0.2 s commit 1000 of shard 0 is not there: it is following, at commit" in late.output


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgresql", "delta"])
def test_a_replica_once_is_compared_and_what_differs_is_named(
    broker: Broker, changelog: str, source: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """In each store; the lag is that of the log."""
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        name = f"copy_{next(NUMBERS)}"
        server.create(name)
        place = f"postgresql://moldau@127.0.0.1:{server.port}/{name}"
    else:
        place = str(source.parent / "copy") if kind == "delta" else f"{kind}:///{source.parent}/copy.{kind}"
    master = f"sqlite:///{source}"
    succeeded(broker, "publish", changelog, "--from", master, "--once")
    assert succeeded(broker, "replicate", changelog, "--to", place, "--once").startswith(
        f"changelog {changelog}, shard 0: following, commit "
    )
    equal = succeeded(broker, "compare", changelog, master, place)
    assert ": equal: " in equal
    assert "orders (100 rows)" in equal
    write(
        source, "UPDATE orders SET item = 'rice' WHERE id = 7", "DELETE FROM orders WHERE id = 8", "INSERT INTO orders VALUES (500, 'new')"
    )
    found = moldau(broker, "compare", changelog, master, place)
    assert found.exit_code == 4
    assert "shard 0, table orders, key 7: item is 'rice' in the source, 'item 7' in the replica\n" in found.output
    assert "shard 0, table orders, key 8: only in the replica\n" in found.output
    assert "shard 0, table orders, key 500: missing in the replica\n" in found.output
    document = json.loads(moldau(broker, "compare", changelog, master, place, "--json").output)
    assert {(each["kind"], *each["key"]) for each in document["differences"]} == {("different", 7), ("extra", 8), ("missing", 500)}
    succeeded(broker, "publish", changelog, "--from", master, "--once")
    (replica,) = json.loads(succeeded(broker, "status", changelog, "--json", "--replica", place))["replicas"]
    assert replica["commits_behind"] == 1
    succeeded(broker, "replicate", changelog, "--to", place, "--once")
    succeeded(broker, "compare", changelog, master, place)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def test_postgresql_is_published_by_a_process(broker: Broker, changelog: str, postgres: PostgresServer, tmp_path: Path) -> None:
    name = f"source_{next(NUMBERS)}"
    postgres.create(name)
    place, copy = f"postgresql://moldau@127.0.0.1:{postgres.port}/{name}", f"sqlite:///{tmp_path}/copy.db"
    with postgres.connect(name) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, item text)")
        connection.execute("INSERT INTO orders VALUES (1, 'tea')")
        with running(broker, "publish", changelog, "--from", place, "--table", "orders"):
            shard_with_rows(broker, changelog, 1)
            succeeded(broker, "replicate", changelog, "--to", copy, "--once")
            succeeded(broker, "compare", changelog, place, copy)
        connection.execute(DROP_FREE_SLOTS)


@pytest.fixture
def orders(postgres: PostgresServer) -> Iterator[tuple[str, "psycopg.Connection[Any]"]]:
    """The address of a database in PostgreSQL with two tables, and a connection to it."""
    name = f"source_{next(NUMBERS)}"
    postgres.create(name)
    with postgres.connect(name) as connection:
        connection.execute(
            "CREATE TABLE orders (id integer PRIMARY KEY, item text); CREATE TABLE notes (id integer PRIMARY KEY, text text)"
        )
        connection.execute("INSERT INTO orders SELECT number, 'tea' FROM generate_series(1, 200) number")
        yield f"postgresql://moldau@127.0.0.1:{postgres.port}/{name}", connection
        connection.execute(DROP_FREE_SLOTS)


def test_postgresql_is_published_as_before_when_no_tables_are_named(
    broker: Broker, changelog: str, orders: tuple[str, "psycopg.Connection[Any]"]
) -> None:
    """Other tables than those of the first start are an error that names both."""
    place, connection = orders
    nothing = moldau(broker, "publish", changelog, "--from", place)
    assert nothing.exit_code == 2
    assert "which tables of PostgreSQL are published has to be said at the first start: --table TABLE" in nothing.output
    with running(broker, "publish", changelog, "--from", place, "--table", "orders"):
        shard_with_rows(broker, changelog, 200)
    connection.execute("INSERT INTO orders VALUES (1000, 'rice'); INSERT INTO notes VALUES (1, 'not published')")
    with running(broker, "publish", changelog, "--from", place):
        assert "notes" not in shard_with_rows(broker, changelog, 201)["tables"]
    other = moldau(broker, "publish", changelog, "--from", place, "--table", "notes")
    assert other.exit_code == 1
    assert "the publication is of orders, wanted are notes" in other.output
    assert "has to be published again as a whole (--republish lost)" in other.output


def test_rows_of_postgresql_are_divided_over_shards_and_compared_in_each(
    broker: Broker, changelog: str, orders: tuple[str, "psycopg.Connection[Any]"], tmp_path: Path
) -> None:
    place, connection = orders
    divided = ("publish", changelog, "--from", place, "--shard", "all", "--shards", "3")
    copy = f"sqlite:///{tmp_path}/copy.db"

    def wait_published(commits: int) -> list[int]:
        """Until each shard is complete and has this commit or a later one; the last commits."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            done = moldau(broker, "status", changelog, "--json")
            shards = [] if done.exit_code else json.loads(done.output)["shards"]
            if shards and all(each["commit"] >= commits and each["complete"] for each in shards):
                return [each["commit"] for each in shards]
        raise AssertionError(f"it is not published: {done.output}")

    with running(broker, *divided, "--table", "orders"):
        before = wait_published(1)
        succeeded(broker, "replicate", changelog, "--to", copy, "--once")
    with running(broker, *divided):
        connection.execute("UPDATE orders SET item = 'rice' WHERE id = 7")
        wait_published(max(before) + 1)
        succeeded(broker, "replicate", changelog, "--to", copy, "--once")
    counts = []
    for shard in map(str, range(3)):
        equal = succeeded(broker, "compare", changelog, place, copy, "--shard", shard, "--shards", "3")
        assert f"shard {shard}, commit" in equal
        counts.append(int(re.search(r"orders \((\d+) rows\)", equal)[1]))  # type: ignore[index]
    assert sum(counts) == 200
    assert min(counts) > 40
    connection.execute("UPDATE orders SET item = 'salt' WHERE id = 7")
    found = [moldau(broker, "compare", changelog, place, copy, "--shard", str(shard), "--shards", "3") for shard in range(3)]
    assert sorted(each.exit_code for each in found) == [0, 0, 4]
    assert "table orders, key 7: item is 'salt' in the source, 'rice' in the replica" in "".join(each.output for each in found)


def test_sqlite_is_published_as_before_when_no_tables_are_named(broker: Broker, changelog: str, source: Path) -> None:
    """A start without names publishes no table that was left out."""
    at = f"sqlite:///{source}"

    def tables() -> set[str]:
        ((shard,),) = (json.loads(succeeded(broker, "status", changelog, "--json"))["shards"],)
        return set(shard["tables"])

    write(source, "INSERT INTO notes VALUES (1, 'secret')")
    succeeded(broker, "publish", changelog, "--from", at, "--table", "orders", "--once")
    succeeded(broker, "publish", changelog, "--from", at, "--once")
    assert tables() == {"orders"}
    write(source, "CREATE TABLE more (id INTEGER PRIMARY KEY)", "INSERT INTO more VALUES (1)")
    succeeded(broker, "publish", changelog, "--from", at, "--table", "more", "--once")
    succeeded(broker, "publish", changelog, "--from", at, "--once")
    assert tables() == {"orders", "more"}, "named tables are added"


def test_a_replica_that_is_loading_is_not_shown_as_up_to_date(broker: Broker, changelog: str, source: Path) -> None:
    """It is at no commit: nothing is known of how many it lacks, and its time grows."""
    copy = source.parent / "copy.db"
    succeeded(broker, "publish", changelog, "--from", f"sqlite:///{source}", "--once")
    store = SqliteStore(copy)
    store.prepare(changelog, [])
    store.apply(0, [], Position(Phase.LOADING, 1, 10**6, time.time_ns() // 1_000_000 - 60_000, {f"{changelog}._commits": 0}))
    store.close()
    (replica,) = json.loads(succeeded(broker, "status", changelog, "--json", "--replica", f"sqlite:///{copy}"))["replicas"]
    assert (replica["phase"], replica["commit"], replica["commits_behind"]) == ("loading", None, None)
    assert 60 <= replica["seconds_behind"] < 60 + LIMIT_S
    shown = succeeded(broker, "status", changelog, "--replica", f"sqlite:///{copy}").splitlines()[-1]
    assert re.search(r" loading +1 +- +- +[67]\d\.\d s", shown), shown


def test_an_error_names_the_option_of_the_command(broker: Broker, changelog: str, source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    write(copy, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)", "INSERT INTO orders VALUES (5, 'of something else')")
    succeeded(broker, "publish", changelog, "--from", f"sqlite:///{source}", "--once")
    refused = moldau(broker, "replicate", changelog, "--to", f"sqlite:///{copy}", "--once")
    assert refused.exit_code == 1
    assert "it may be something else than a replica; the replica stops. With --begin-again its rows are removed" in refused.output


def test_a_publisher_that_is_fenced_says_so_in_one_line(broker: Broker, changelog: str, source: Path) -> None:
    environment = {**os.environ, "MOLDAU_BOOTSTRAP": broker.bootstrap_servers, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "moldau", "changelog", "publish", changelog, "--from", f"sqlite:///{source}"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            shard_with_rows(broker, changelog, 100)
            with Publisher(broker.bootstrap_servers, changelog):
                write(source, "INSERT INTO orders VALUES (1000, 'tea')")
                _, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert re.fullmatch(rf"Error: changelog {changelog}, shard 0: fenced after commit \d+: [^\n]*\n", errors), errors


def test_a_replica_is_promoted_and_the_former_master_is_fenced(broker: Broker, changelog: str, source: Path) -> None:
    """It publishes in the next epoch, under its address; the former master becomes a replica of it."""
    copy = source.parent / "copy.db"
    with Store(source, broker.bootstrap_servers, changelog, address="node1") as master:
        master.publish()
        succeeded(broker, "replicate", changelog, "--to", f"sqlite:///{copy}", "--once")
        with master.transaction() as transaction:
            transaction.execute("INSERT INTO orders VALUES (1000, 'acknowledged')")
        master.publish()
        said = succeeded(broker, "promote", changelog, f"sqlite:///{copy}", "--address", "node2")
        (shard,) = json.loads(succeeded(broker, "status", changelog, "--json"))["shards"]
        assert (shard["epoch"], shard["master"]) == (2, "node2")
        assert said == f"changelog {changelog}, shard 0: sqlite:///{copy} is the master, from commit {shard['commit']} on\n"
        with master.transaction() as transaction:
            transaction.execute("INSERT INTO orders VALUES (1001, 'never acknowledged')")
        with pytest.raises(PublisherFencedError):
            master.publish()
    assert succeeded(broker, "promote", changelog, f"sqlite:///{copy}") == said, "what has ended may be repeated"
    write(copy, "INSERT INTO orders VALUES (1002, 'new')")
    succeeded(broker, "publish", changelog, "--from", f"sqlite:///{copy}", "--once", "--address", "node2")
    refused = moldau(broker, "publish", changelog, "--from", f"sqlite:///{source}", "--once")
    assert refused.exit_code == 1
    assert "another replica was promoted; make this database again as a replica of it" in refused.output
    succeeded(broker, "replicate", changelog, "--to", f"sqlite:///{source}", "--once", "--begin-again")
    succeeded(broker, "compare", changelog, f"sqlite:///{copy}", f"sqlite:///{source}")
    store = SqliteStore(source)
    (position,) = store.look(changelog).values()
    store.look(changelog, list(position.tables.values()))
    assert [key for key, _ in store.rows(0, "orders", WHOLE)][100:] == [(1000,), (1002,)]
    store.close()


def test_a_replica_that_is_published_by_mistake_stays_a_replica(broker: Broker, changelog: str, source: Path, tmp_path: Path) -> None:
    copy = f"sqlite:///{tmp_path / 'copy.db'}"
    succeeded(broker, "publish", changelog, "--from", f"sqlite:///{source}", "--once")
    succeeded(broker, "replicate", changelog, "--to", copy, "--once")
    refused = moldau(broker, "publish", changelog, "--from", copy, "--once")
    assert refused.exit_code == 1
    assert "the database is a replica of it: only a promotion makes it the source (moldau changelog promote)" in refused.output
    assert "following" in succeeded(broker, "replicate", changelog, "--to", copy, "--once")


def test_a_topic_of_others_with_fewer_partitions_is_no_error(broker: Broker, changelog: str, source: Path) -> None:
    succeeded(broker, "publish", changelog, "--from", f"sqlite:///{source}", "--shards", "2", "--once")
    with Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).create_topic(f"{changelog}.others", 1)
    shards = json.loads(succeeded(broker, "status", changelog, "--json", "--timeout", "2"))["shards"]
    assert [sorted(each["tables"]) for each in shards] == [["notes", "orders", "others"], ["notes", "orders"]]


def test_mistakes_are_one_line(broker: Broker, changelog: str, source: Path) -> None:
    at = f"sqlite:///{source}"
    nothing = f"changelog {changelog}: nothing is published: topic {changelog}._commits does not exist"
    missing = source.parent / "no.db"
    for words, code, problem in (
        (("status", changelog), 1, nothing),
        (("replicate", changelog, "--to", "sqlite:///x.db", "--once"), 1, nothing),
        (("publish", changelog, "--from", "duckdb:///x.db"), 2, "only SQLite and PostgreSQL can be published"),
        (("publish", changelog, "--from", at, "--shard", "all", "--shards", "2"), 2, "--shard all is for PostgreSQL"),
        (("publish", changelog, "--from", "postgresql://h/d", "--shard", "all"), 2, "--shard all --shards COUNT, 2 or more"),
        (("compare", changelog, at, at, "--shards", "2"), 2, "--shards is for a SOURCE in PostgreSQL"),
        (("compare", changelog, "postgresql://h/d", at, "--shards", "2", "--shard", "2"), 2, "have shards 0 to 1"),
        (("publish", changelog, "--from", at, "--as-text", "a.b"), 2, "--republish and --as-text are for PostgreSQL"),
        (("publish", changelog, "--from", f"sqlite:///{missing}"), 1, f"sqlite:///{missing}: there is no such file"),
        (("replicate", changelog, "--to", "mysql://h/d"), 2, "'mysql://h/d' is not the address of a store"),
        (("wait", changelog, "--commit", "1", "--in", f"sqlite:///{missing}"), 1, f"sqlite:///{missing}: there is no such file"),
        (("compare", changelog, at, at), 1, f"{at}: it has no position of changelog {changelog}, shard 0"),
        (("promote", changelog, "duckdb:///x.db"), 2, "only a replica in SQLite can be promoted"),
    ):
        done = moldau(broker, *words)
        assert (done.exit_code, problem in done.output) == (code, True), done.output
        assert not missing.exists()
    succeeded(broker, "publish", changelog, "--from", at, "--once")
    no_replica = moldau(broker, "status", changelog, "--replica", at)
    assert no_replica.exit_code == 1
    assert f"Error: {at}: no replica of changelog {changelog}: it has no position\n" in no_replica.output
    other = moldau(broker, "replicate", changelog, "--to", "sqlite:///x.db", "--shard", "3")
    assert (other.exit_code, f"changelog {changelog} has shards 0 to 0" in other.output) == (2, True)
    as_it_was = sqlite3.connect(source)
    assert as_it_was.execute("SELECT count(*) FROM sqlite_master WHERE name = '_moldau_positions'").fetchone() == (0,)
    as_it_was.close()


@pytest.mark.parametrize("command", ["publish", "replicate"])
def test_a_disk_that_is_full_is_one_line(broker: Broker, changelog: str, source: Path, command: str) -> None:
    """Which names the file; with space the same command continues."""
    copy = source.parent / "copy.db"
    write(source, "INSERT INTO notes SELECT id, printf('%0500d', id) FROM orders")
    publish = ["publish", changelog, "--from", f"sqlite:///{source}", "--once"]
    replicate = ["replicate", changelog, "--to", f"sqlite:///{copy}", "--once"]
    wanted, file = (publish, source) if command == "publish" else (replicate, copy)
    if command == "replicate":
        succeeded(broker, *publish)
    environment = {**os.environ, "MOLDAU_BOOTSTRAP": broker.bootstrap_servers, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 60 && exec "$@"', "bash", sys.executable, "-B", "-m", "moldau", "changelog", *wanted],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"Error: .*{re.escape(str(file))}: .*\n", done.stderr), done.stderr
    for each in (publish, replicate):
        succeeded(broker, *each)
    assert ": equal: " in succeeded(broker, "compare", changelog, f"sqlite:///{source}", f"sqlite:///{copy}")
