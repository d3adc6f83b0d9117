"""What a source does at its start: a table over slot, publication and the log's last commit (mission I5)."""

import pytest

from moldau.changelog.all_shards import SHARDS
from moldau.changelog.postgres.errors import SlotLostError, SlotState
from moldau.changelog.postgres.slots import ALL, LSN, READING, Origin, ServerPlace, SlotRow, standing
from moldau.changelog.postgres.tables import TableName

ITEMS, NOTES = TableName("public", "items"), TableName("public", "notes")
SLOT = SlotRow("pgoutput", True, "reserved", 0x100, None)
SERVER = ServerPlace(Origin("7", 1, 16_384), 0x1000)
LAST: dict[str, str | int] = {LSN: "0/100", **SERVER.origin._asdict()}


@pytest.mark.parametrize(
    ("slot", "published", "last", "state"),
    [
        (SLOT, {ITEMS}, LAST, SlotState.READY),
        (SLOT._replace(active_pid=5), {ITEMS}, {**LAST, LSN: "0/200"}, SlotState.READY),
        (SLOT._replace(wal_status="extended"), {ITEMS}, {**LAST, LSN: "0/200", READING: "items"}, SlotState.READY),
        (None, None, None, SlotState.UNFINISHED),
        (SLOT, {ITEMS}, None, SlotState.UNFINISHED),
        (SLOT, {ITEMS}, {**LAST, READING: ALL}, SlotState.UNFINISHED),
        (None, {ITEMS}, {**LAST, READING: ALL}, SlotState.UNFINISHED),
        (None, {ITEMS}, LAST, SlotState.MISSING),
        (SLOT._replace(wal_status="lost"), {ITEMS}, LAST, SlotState.LOST),
        (SLOT._replace(confirmed_lsn=None), {ITEMS}, LAST, SlotState.LOST),
        (SLOT._replace(confirmed_lsn=0x101), {ITEMS}, LAST, SlotState.ADVANCED),
        (SLOT, None, LAST, SlotState.TABLES),
        (SLOT, {ITEMS, NOTES}, LAST, SlotState.TABLES),
        (SLOT, set(), LAST, SlotState.TABLES),
        (SLOT, {ITEMS}, {}, SlotState.REPLACED),
        (SLOT, {ITEMS}, {LSN: "0/100"}, SlotState.REPLACED),
        (SLOT, {ITEMS}, {**LAST, "system": "8"}, SlotState.REPLACED),
        (SLOT, {ITEMS}, {**LAST, "timeline": 2}, SlotState.REPLACED),
        (SLOT, {ITEMS}, {**LAST, "database": 5, READING: ALL}, SlotState.REPLACED),
        (SLOT, {ITEMS}, {**LAST, LSN: "0/1000"}, SlotState.READY),
        (SLOT, {ITEMS}, {**LAST, LSN: "0/1001"}, SlotState.REPLACED),
        (None, None, {"outbox": 5}, SlotState.REPLACED),
        (SLOT._replace(plugin="wal2json"), {ITEMS}, None, SlotState.FOREIGN),
        (SLOT._replace(is_of_database=False), {ITEMS}, LAST, SlotState.FOREIGN),
    ],
)
def test_the_standing_of_a_slot(
    slot: SlotRow | None, published: set[TableName] | None, last: dict[str, str | int] | None, state: SlotState
) -> None:
    found = standing(slot, published, {ITEMS}, last, SERVER)
    assert found.state is state
    assert bool(found.detail) == (state is not SlotState.READY)


@pytest.mark.parametrize(("divided", "wanted"), [(None, 3), (2, 3), (3, 1)])
def test_rows_that_are_divided_otherwise_are_those_of_another_source(divided: int | None, wanted: int) -> None:
    last = LAST if divided is None else {**LAST, SHARDS: divided}
    found = standing(SLOT, {ITEMS}, {ITEMS}, last, SERVER, shards=wanted)
    assert found.state is SlotState.DIVIDED
    assert f"divided over {divided or 1} shards, and {wanted} are wanted" in found.detail
    assert standing(SLOT, {ITEMS}, {ITEMS}, {**LAST, SHARDS: wanted}, SERVER, shards=wanted).state is SlotState.READY


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        (SlotState.MISSING, "has to be published again as a whole (republish)"),
        (SlotState.REPLACED, "is only removed if that is asked for (republish now)"),
        (SlotState.DIVIDED, "publish as it was published before, or under another name"),
        (SlotState.FOREIGN, "drop it, or choose another name (slot)"),
    ],
)
def test_an_error_names_what_helps(state: SlotState, advice: str) -> None:
    """To publish again is no help where the slot is of something else, or the rows of another master would be lost."""
    assert str(SlotLostError("PostgreSQL h:5432/d", "moldau_shop", state, "a detail")).endswith(advice)
