"""Tables in an object store keep the promises of those in directories, in both formats (mission I2)."""

import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import obstore
import pyarrow.compute as pc
import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from moldau.lake.dataset import scan
from moldau.lake.doctor.examination import examine
from moldau.lake.doctor.facts import Limits
from moldau.lake.doctor.repairing import repair
from moldau.lake.doctor.rules import findings
from moldau.lake.merging.merge import merge_table
from moldau.lake.merging.replaced_files import remove_replaced
from moldau.lake.table import remove_orphans, set_watermark, wait_until_complete
from moldau.lake.tables import delta
from moldau.lake.tables.committing import LoadConflictError, LoadedOffset, application_id, commit, discard
from moldau.lake.tables.data_files import FileError, files_of
from moldau.lake.tables.format import TableChange, TableError, UnansweredCommitError
from moldau.lake.tables.opening import FORMATS, format_of, open_table, opened
from moldau.lake.tables.places import objects
from moldau.lake.tables.places.addresses import place_of
from moldau.lake.tables.rewriting import compact_table
from support.merge_world import AppendedTable, Model, comparable, merged_rows
from support.number_table import NumberTable
from support.s3 import S3Server
from support.s3 import objects as objects_below
from support.sizes import sized

ID = application_id("job", "00ff", 0)


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, s3: S3Server) -> NumberTable:
    return NumberTable(request.param, f"{s3.bucket()}/lake/orders")


def load(table: NumberTable, number: int, offset: int, before: int | None) -> int:
    change = TableChange("LOAD", table.write([number]), offsets={ID: offset}, metadata={"moldau.job": "job"})
    return commit(table.tables, table.path, change, before=[LoadedOffset(ID, before)])


def test_a_table_is_made_once_found_and_read(table: NumberTable) -> None:
    assert open_table(f"{table.path}-none") is None
    assert format_of(table.path) is not None
    assert NumberTable(table.tables.name, table.path).now().id == table.now().id
    with pytest.raises(TableError, match=r"there is a .* table already"):
        NumberTable("parquet" if table.tables.name == "delta" else "delta", table.path)
    table.load(1, 2, day=0)
    table.load(3, day=1)
    assert table.numbers() == [1, 2, 3]
    assert sorted(scan(table.path, version=1).to_table()["n"].to_pylist()) == [1, 2]
    of_a_day = scan(table.path).to_table(filter=pc.field("event_day") == date(1970, 1, 2))
    assert of_a_day.to_pylist() == [{"n": 3, "event_hour": 0, "event_day": date(1970, 1, 2)}]
    with pytest.raises(TableError, match="there is no version 9, the newest is 2"):
        opened(table.path, 9)


def test_the_second_of_two_loads_from_the_same_offsets_changes_nothing(table: NumberTable) -> None:
    assert load(table, 1, 1, None) == 1
    with pytest.raises(LoadConflictError, match="another load has moved moldau:job:00ff:0 from offset None"):
        load(table, 2, 1, None)
    assert (table.numbers(), table.now().offset(ID)) == ([1], 1)
    assert [each.metadata.get("moldau.job") for each in table.tables.commits(table.path, 0)] == ["job"]
    assert table.tables.application_ids(table.path) == {ID}


def test_writers_at_once_each_make_their_versions(table: NumberTable) -> None:
    count, each = 3, sized(5, 50)

    def write(first: int) -> None:
        for number in range(first, first + each):
            table.load(number)

    threads = [threading.Thread(target=write, args=(number * each,)) for number in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (table.numbers(), table.now().version) == (list(range(count * each)), count * each)


def test_a_version_whose_answer_is_lost_is_made_once(table: NumberTable, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lost = obstore.put, [True]

    def unreliable(store: Any, name: str, *arguments: Any, **named: Any) -> Any:
        done = real(store, name, *arguments, **named)
        if name.endswith(".json") and lost:
            lost.pop()
            raise GenericError("connection closed")
        return done

    monkeypatch.setattr(objects, "_PAUSE_S", 0.0)
    monkeypatch.setattr("moldau.lake.tables.places.objects.obstore.put", unreliable)
    assert load(table, 1, 1, None) == 1
    assert (table.numbers(), table.now().version) == ([1], 1)


def test_files_of_a_version_that_is_never_answered_stay(table: NumberTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may appear after its writer has given up."""
    real, late = obstore.put, list[tuple[Any, ...]]()

    def away(store: Any, name: str, content: Any, **named: Any) -> Any:
        if name.endswith(".json"):
            late.append((store, name, content, named))
            raise GenericError("timed out")
        return real(store, name, content, **named)

    files = table.write([1])
    with monkeypatch.context() as patched:
        patched.setattr(objects, "PATIENCE_S", 0.0)
        patched.setattr("moldau.lake.tables.places.objects.obstore.put", away)
        with pytest.raises(UnansweredCommitError, match="it is not known whether version 1 was made") as unanswered:
            commit(table.tables, table.path, TableChange("LOAD", files, offsets={ID: 1}))
        discard(table.tables, table.path, [each.path for each in files], unanswered.value)
    assert table.numbers() == []
    store, name, content, named = late[0]
    real(store, name, content, **named)
    assert table.numbers() == [1]


def test_what_a_store_refuses_is_named_as_it_is_called(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    table = NumberTable("parquet", f"{s3.bucket()}/Lake/Orders")

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionDeniedError("<Code>AccessDenied</Code>")

    files = table.write([1])
    monkeypatch.setattr("moldau.lake.tables.places.objects.obstore.put", refuse)
    with pytest.raises(TableError, match=r"cannot be written: s3://.*/Lake/Orders/_manifests/.*: AccessDenied$"):
        table.commit(TableChange("LOAD", files))
    with pytest.raises(FileError, match=r"cannot be brought to disk: s3://.*/Lake/Orders/event_day=.*: AccessDenied$"):
        table.write([2])


def test_a_store_that_cannot_be_listed_is_a_table_error(table: NumberTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.load(1)

    def away(*_: Any, **__: Any) -> Any:
        raise GenericError("timed out")

    asks: list[Callable[[], Any]] = [
        lambda: table.tables.application_ids(table.path),
        lambda: list(table.tables.commits(table.path, 0)),
        lambda: list(table.tables.row_changes(table.path, 0, 1)),
        lambda: table.tables.named_since(table.path, 0),
    ]
    for name in ("list", "get"):
        monkeypatch.setattr(f"moldau.lake.tables.places.objects.obstore.{name}", away)
    for ask in asks:
        with pytest.raises(TableError, match="timed out"):
            ask()


def test_a_manifest_that_was_made_and_cannot_be_listed_may_be_the_version(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    table, real, lost = NumberTable("parquet", f"{s3.bucket()}/table"), obstore.put, list[bool]()
    base, files, listed = table.now(), table.write([1]), obstore.list

    def put(store: Any, name: str, *arguments: Any, **named: Any) -> Any:
        lost.append(True)
        return real(store, name, *arguments, **named)

    def list_(*arguments: Any, **named: Any) -> Any:
        if lost:
            raise GenericError("timed out")
        return listed(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr("moldau.lake.tables.places.objects.obstore.put", put)
        patched.setattr("moldau.lake.tables.places.objects.obstore.list", list_)
        with pytest.raises(UnansweredCommitError, match=r"version 1 was made, and it is not known whether it counts: .* timed out"):
            table.tables.put(table.path, base, TableChange("LOAD", files))
    assert table.numbers() == [1]


def test_what_a_refused_load_has_written_is_removed(table: NumberTable) -> None:
    files = table.write([1])
    assert files_of(table.path, "job", "") == [files[0].path]
    discard(table.tables, table.path, [files[0].path])
    assert objects_below(table.path) == set()


def test_a_compaction_and_orphans(table: NumberTable) -> None:
    for number in range(3):
        table.load(number)
    table.write([99])
    assert compact_table(table.path).files_after == 1
    assert (table.numbers(), len(table.now().files())) == ([0, 1, 2], 1)
    assert remove_orphans(table.path) == [], "they are too young"
    assert len(remove_orphans(table.path, 0)) == 4
    assert objects_below(table.path) == {table.now().files()[0].path}


def test_checkpoints_are_made_and_read(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 3)
    table = NumberTable("delta", f"{s3.bucket()}/orders")
    for number in range(4):
        load(table, number, number + 1, number or None)
    place = place_of(table.path)
    place.delete([f"{delta.LOG}/{number:020d}.json" for number in range(3)])
    assert (table.numbers(), table.now().version) == ([0, 1, 2, 3], 4)
    assert table.tables.application_ids(table.path) == {ID}


def test_a_table_is_waited_for(table: NumberTable) -> None:
    set_watermark(table.tables, table.path, 86_400_000)
    until = datetime(1970, 1, 2, tzinfo=UTC)
    assert wait_until_complete(table.path, until, 5.0) == until


def test_the_doctor_finds_and_repairs(table: NumberTable) -> None:
    for number in range(3):
        table.load(number)
    limits = Limits(small_files_min=3)
    facts = examine(table.path, limits)
    assert (facts.files, facts.missing, facts.footers.read, facts.footers.damaged) == (3, [], 3, {})
    found = findings(facts, limits)
    assert [each.check.value for each in found if each.repairable] == ["small files"]
    assert [each.done for each in repair(table.path, found, limits)] == [True]
    assert (table.numbers(), len(table.now().files())) == ([0, 1, 2], 1)
    place_of(table.path).delete([table.now().files()[0].path])
    assert [each.check.value for each in findings(examine(table.path, limits), limits)][:1] == ["missing files"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_merged_table_follows_and_its_replaced_files_go(kind: str, s3: S3Server) -> None:
    bucket = s3.bucket()
    appended, merged, model = AppendedTable(f"{bucket}/t", kind), f"{bucket}/merged/t", Model()
    for begin in range(0, 120, 10):
        appended.append(
            {"id": f"key {number % 7}", "n": number, "op": "d" if number % 5 == 4 else "u"} for number in range(begin, begin + 10)
        )
        merge_table(appended.path, merged, keys=["id"], deletes="op=d", buckets=2, keep=timedelta(hours=1))
    model.merge(appended.rows)
    assert comparable(merged_rows(merged)) == comparable(model.live())
    named = {each.path for each in opened(merged).files()}
    assert objects_below(merged) > named, "files that were replaced just now stay for readers"
    tables = format_of(merged)
    assert tables is not None
    assert remove_replaced(tables, merged, named, timedelta(hours=1), 4_000_000_000.0) != []
    assert objects_below(merged) == named
    assert comparable(merged_rows(merged)) == comparable(model.live())
