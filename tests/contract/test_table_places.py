"""One contract for all places of tables, a directory and an object store: a name is taken once, what is put is whole (mission I2)."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError

from moldau.lake.tables.places import objects
from moldau.lake.tables.places.addresses import StoreSettings, absolute, one_in_the_other, place_of, store_settings, unfit
from moldau.lake.tables.places.place import Place, UnansweredError
from support.sizes import sized


@pytest.fixture(params=["directory", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return place_of(str(tmp_path / "a table"))
    return place_of(f"{request.getfixturevalue('s3').bucket()}/lake/table")


def put(place: Place, name: str, content: bytes = b"rows") -> None:
    file = place.create(name)
    file.write(content)
    place.end(name, file)


def test_a_check_leaves_nothing(place: Place) -> None:
    place.check()
    assert list(place.walk()) == []


def test_a_name_is_taken_once(place: Place) -> None:
    place.prepare("_log")
    place.put_new("_log/1.json", b"mine")
    with pytest.raises(FileExistsError):
        place.put_new("_log/1.json", b"other")
    assert place.read("_log/1.json") == b"mine"


def test_of_four_writers_of_one_name_one_wins(place: Place) -> None:
    place.prepare("_log")
    for number in range(sized(25, 500)):
        winners: list[bytes] = []
        start = threading.Barrier(4)

        def write(who: bytes, name: str = f"_log/{number}.json", winners: list[bytes] = winners, start: Any = start) -> None:
            start.wait()
            try:
                place.put_new(name, who)
            except FileExistsError:
                return
            winners.append(who)

        threads = [threading.Thread(target=write, args=(who,)) for who in (b"a", b"b", b"c", b"d")]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert winners == [place.read(f"_log/{number}.json")]


def test_what_is_not_there_is_a_file_not_found(place: Place) -> None:
    for ask in (place.read, place.state):
        with pytest.raises(FileNotFoundError):
            ask("none")
    assert not place.has_folder("_log")
    assert list(place.read_all(["none", "a/none"])) == []
    place.delete(["none"])


def test_a_file_in_place_of_another_one(place: Place) -> None:
    place.put("_notes/n.json", b"1")
    place.put("_notes/n.json", b"2")
    assert place.read("_notes/n.json") == b"2"


def test_files_of_a_folder_are_listed(place: Place) -> None:
    place.prepare("_log")
    for number in range(3):
        place.put_new(f"_log/{number}.json", bytes(number))
    assert sorted(place.names("_log")) == ["0.json", "1.json", "2.json"]
    assert sorted(place.names("_log", "1")) == ["1.json", "2.json"]
    assert sorted((each.name, each.size) for each in place.states("_log")) == [("_log/0.json", 0), ("_log/1.json", 1), ("_log/2.json", 2)]
    assert place.has_folder("_log")
    assert not place.has_folder("_lo"), "a folder is a whole part of a name"
    assert [name for name, _ in place.read_all(f"_log/{number}.json" for number in (2, 7, 0))] == ["_log/2.json", "_log/0.json"]


def test_data_files_are_there_when_they_are_settled(place: Place) -> None:
    names = [f"day={number}/{'_' if number else ''}rows.parquet" for number in range(5)]
    for name in names:
        put(place, name, name.encode())
    place.settle(names)
    place.put("_moldau/note", b"")
    assert sorted(each.name for each in place.walk()) == names, (
        "what lies in a folder with an underscore is no data file; a job's name, and so a file's, may begin with one"
    )
    assert [place.read(name) for name in names] == [name.encode() for name in names]
    assert place.state(names[0]).size == len(names[0])
    place.delete(names[:2])
    assert sorted(each.name for each in place.walk()) == names[2:]


def test_a_file_that_is_abandoned_is_nowhere(place: Place) -> None:
    open_file = place.create("day=1/open.parquet")
    open_file.write(b"half")
    place.abandon("day=1/open.parquet", open_file)
    ended = place.create("day=1/ended.parquet")
    place.end("day=1/ended.parquet", ended)
    place.abandon("day=1/ended.parquet", ended)
    place.settle([])
    assert list(place.walk()) == []


def test_another_place_of_the_address_waits_for_a_data_file(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are forgotten when there are many, and two threads may each have made one."""
    address, names = f"{s3.bucket()}/table", ["a.parquet", "b.parquet"]

    def away(*_: Any, **__: Any) -> Any:
        raise GenericError("timed out")

    first = place_of(address)
    put(first, names[0])
    monkeypatch.setenv("AWS_UNRELATED", "1")
    other = place_of(f"{address}/")
    assert other is not first
    other.settle(names[:1])
    assert other.read(names[0]) == b"rows"
    monkeypatch.setattr("moldau.lake.tables.places.objects.obstore.put", away)
    put(first, names[1])
    with pytest.raises(OSError, match=r"/table/b\.parquet: timed out"):
        other.settle(names[1:])


def test_a_large_file_is_put_in_parts(s3: Any) -> None:
    place = place_of(f"{s3.bucket()}/table")
    content = bytes(range(256)) * (9 << 12) * 4
    put(place, "large.parquet", content)
    place.settle(["large.parquet"])
    assert place.state("large.parquet").size == len(content) > objects._PART_BYTES
    source = place.source("large.parquet")
    source.seek(len(content) - 300)
    assert source.read(200) == content[-300:-100]


@pytest.fixture
def answers(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What becomes of the next puts: ``lost``, the store has made it and the answer is lost; ``away``, it has not."""
    orders: list[str] = []
    real = obstore.put
    monkeypatch.setattr(objects, "_PAUSE_S", 0.0)

    def unreliable(*arguments: Any, **named: Any) -> Any:
        order = orders.pop(0) if orders else ""
        if order != "away":
            done = real(*arguments, **named)
        if order:
            raise GenericError("connection closed")
        return done

    monkeypatch.setattr("moldau.lake.tables.places.objects.obstore.put", unreliable)
    yield orders
    assert orders == []


@pytest.mark.parametrize("orders", [["lost"], ["away"], ["away", "lost"], ["lost", "away", "away"]])
def test_a_put_whose_answer_is_lost_is_known_to_be_ones_own(s3: Any, answers: list[str], orders: list[str]) -> None:
    place = place_of(f"{s3.bucket()}/table")
    answers += orders
    place.put_new("_log/1.json", b"mine")
    assert place.read("_log/1.json") == b"mine"


def test_a_put_whose_answer_is_lost_is_known_not_to_be_ones_own(s3: Any, answers: list[str]) -> None:
    place = place_of(f"{s3.bucket()}/table")
    place.put_new("_log/1.json", b"other")
    answers.append("away")
    with pytest.raises(FileExistsError):
        place.put_new("_log/1.json", b"mine")
    assert place.read("_log/1.json") == b"other"


def test_a_put_that_is_never_answered_is_not_known(s3: Any, answers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(f"{s3.bucket()}/table")
    monkeypatch.setattr(objects, "PATIENCE_S", 0.0)
    answers.append("lost")
    with pytest.raises(UnansweredError, match=r"/table/_log/1\.json: no answer, so it may have been put or not: connection closed"):
        place.put_new("_log/1.json", b"mine")


def test_a_store_without_conditional_puts_is_refused(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = obstore.put

    def unconditional(*arguments: Any, mode: str = "overwrite", **named: Any) -> Any:
        return real(*arguments, **named)

    place = place_of(f"{s3.bucket()}/table")
    monkeypatch.setattr("moldau.lake.tables.places.objects.obstore.put", unconditional)
    with pytest.raises(OSError, match="it ignores If-None-Match"):
        place.check()
    assert list(place.walk()) == []


def test_a_name_that_is_neither_taken_nor_free_is_asked_for_again(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another put of the name was in the way, and was not made after all."""
    real, refusals = obstore.put, [AlreadyExistsError("409 ConditionalRequestConflict")]

    def refused(*arguments: Any, **named: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return real(*arguments, **named)

    monkeypatch.setattr(objects, "_PAUSE_S", 0.0)
    monkeypatch.setattr("moldau.lake.tables.places.objects.obstore.put", refused)
    place = place_of(f"{s3.bucket()}/table")
    place.put_new("_log/1.json", b"mine")
    assert place.read("_log/1.json") == b"mine"


def test_a_taken_name_that_cannot_be_read_may_be_ones_own(s3: Any, answers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    place, real, unread = place_of(f"{s3.bucket()}/table"), obstore.get, [GenericError("timed out")]

    def get(*arguments: Any) -> Any:
        if unread:
            raise unread.pop()
        return real(*arguments)

    answers.append("lost")
    monkeypatch.setattr("moldau.lake.tables.places.objects.obstore.get", get)
    place.put_new("_log/1.json", b"mine")
    monkeypatch.setattr(objects, "PATIENCE_S", 0.0)
    unread.append(GenericError("timed out"))
    with pytest.raises(UnansweredError, match=r"it may have been put or not: s3://.*: timed out"):
        place.put_new("_log/1.json", b"other")


def test_a_name_that_stays_neither_taken_nor_free_is_given_up(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise AlreadyExistsError("409 ConditionalRequestConflict")

    monkeypatch.setattr(objects, "_PAUSE_S", 0.0)
    monkeypatch.setattr(objects, "PATIENCE_S", 0.0)
    monkeypatch.setattr("moldau.lake.tables.places.objects.obstore.put", refused)
    with pytest.raises(UnansweredError, match="409 ConditionalRequestConflict"):
        place_of(f"{s3.bucket()}/table").put_new("_log/1.json", b"mine")


def test_what_the_store_refuses_is_one_line(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match=r"^s3://no-such-bucket/table/_moldau_.*: NoSuchBucket: The specified bucket does not exist$"):
        place_of("s3://no-such-bucket/table").check()
    address = f"{s3.bucket()}/table"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(OSError, match=r"_moldau_.*: SignatureDoesNotMatch: ") as refused:
        place_of(address).check()
    assert "wrong" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("s3://bucket/a/b.c_d-e", None),
        ("s3://bucket", None),
        ("s3://bucket/", None),
        ("s3://Bucket/a", "not an address s3://BUCKET/PREFIX"),
        ("s3://bucket/a b", "not an address s3://BUCKET/PREFIX"),
        ("s3://bucket/a/../b", "not an address s3://BUCKET/PREFIX"),
        ("s3://bucket//a", "not an address s3://BUCKET/PREFIX"),
        ("gs://bucket/a", "tables lie in directories of this machine or at s3://BUCKET/PREFIX"),
    ],
)
def test_addresses(address: str, problem: str | None) -> None:
    found = unfit(address)
    assert found is None if problem is None else problem in (found or "")


def test_addresses_below_each_other() -> None:
    assert absolute("s3://bucket/a/") == "s3://bucket/a"
    assert one_in_the_other("s3://bucket/a", "s3://bucket/a/b")
    assert one_in_the_other("s3://bucket/a/", "s3://bucket/a")
    assert not one_in_the_other("s3://bucket/a", "s3://bucket/ab")
    assert not one_in_the_other("s3://bucket/a", "/bucket/a")
    assert one_in_the_other("/a/b", "/a/../a")
    assert one_in_the_other("/", "/a")


def test_settings_reach_a_task_and_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    settings = StoreSettings.of_driver(None, "s3://bucket/a")
    assert "hidden" not in repr(settings)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    StoreSettings.of_driver("/a/path").follow()
    assert "AWS_SECRET_ACCESS_KEY" not in store_settings()
    settings.follow()
    assert store_settings()["AWS_SECRET_ACCESS_KEY"] == "hidden"
