"""What a walk over a log makes of transactions: whose batches are aborted, which markers may go, which index entries stay.

Each line of a dialogue is a batch: producer, offset, what it is; and behind the arrow what the walk is to say of it. ``data`` says whether
it is aborted, ``commit``, ``abort`` and ``empty`` markers whether they may go.
"""

import pytest

from moldau.log.cleaning.filtering import MissingEntryError, TransactionFilter, marker_kind
from moldau.log.transaction_index import TransactionIndexEntry
from moldau.model.errors import ProtocolError
from moldau.protocol.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from moldau.protocol.records.header import TRANSACTIONAL_BIT, BatchHeader

KINDS = {"commit": ControlType.COMMIT, "abort": ControlType.ABORT, "other": 5, "empty": None}

DIALOGUES = {
    "committed data stays, and so does its marker": ("", "7 0 data -> no\n7 1 commit -> stays"),
    "a marker without data may go": ("", "7 5 commit -> goes\n7 9 abort -> goes"),
    "aborted data goes, its marker stays for readers that met it": (
        "7 0-2", "7 0 data -> aborted\n7 1 data -> aborted\n7 2 abort -> stays"
    ),
    "in the next walk there is no data left": ("7 0-2", "7 2 abort -> goes"),
    "two transactions of a producer, one after the other": (
        "7 3-4", "7 0 data -> no\n7 1 commit -> stays\n7 3 data -> aborted\n7 4 abort -> stays\n7 5 data -> no\n7 6 commit -> stays"
    ),
    "two producers at the same time": (
        "8 1-4", "7 0 data -> no\n8 1 data -> aborted\n7 2 data -> no\n7 3 commit -> stays\n8 4 abort -> stays\n8 5 data -> no"
    ),
    "data without a transaction is nobody's": ("7 1-2", "7 0 plain -> no\n7 1 data -> aborted\n7 2 abort -> stays"),
    "an emptied marker may go, and ends nothing": ("7 2-5", "7 2 data -> aborted\n8 3 empty -> goes\n7 5 abort -> stays"),
    "a control record of another kind stays": ("", "7 0 other -> stays"),
    "a transaction that ended before the walk begins does not count": ("7 -9--5", "7 0 data -> no\n7 1 commit -> stays"),
    "the walk begins in the middle of a transaction": ("7 -3-1", "7 0 data -> aborted\n7 1 abort -> stays"),
}  # fmt: skip


def header(producer_id: int, offset: int, *, transactional: bool) -> BatchHeader:
    return BatchHeader(offset, 49, 0, 2, 0, TRANSACTIONAL_BIT if transactional else 0, 0, 0, 0, producer_id, 0, 0, 1)


def entries(text: str) -> list[TransactionIndexEntry]:
    found = []
    for item in filter(None, text.split(",")):
        producer_id, offsets = item.split()
        first, _, last = offsets[1:].partition("-")
        found.append(TransactionIndexEntry(int(producer_id), int(offsets[0] + first), int(last), 100))
    return found


@pytest.mark.parametrize("dialogue", DIALOGUES.values(), ids=DIALOGUES)
def test_dialogues(dialogue: tuple[str, str]) -> None:
    aborted, lines = entries(dialogue[0]), dialogue[1].splitlines()
    transactions = TransactionFilter(aborted, 0)
    for line in lines:
        said, _, expected = line.partition(" -> ")
        producer_id, offset, what = said.split()
        batch = header(int(producer_id), int(offset), transactional=what != "plain")
        if what in KINDS:
            answer = "goes" if transactions.pass_marker(batch, KINDS[what]) else "stays"
        else:
            answer = "aborted" if transactions.pass_data(batch) else "no"
        assert answer == expected, line
    stay = [line for line in lines if line.endswith("abort -> stays")]
    assert [str(entry.last_offset) for entry in transactions.kept] == [line.split()[1] for line in stay]


def test_an_abort_marker_behind_records_that_no_entry_names_is_noticed() -> None:
    """The entry of the transaction before says nothing of it, nor does that of another producer."""
    transactions = TransactionFilter(entries("7 0-1,8 2-9"), 0)
    for offset in (0, 2):
        transactions.pass_data(header(7, offset, transactional=True))
        if offset == 0:
            transactions.pass_marker(header(7, 1, transactional=True), ControlType.ABORT)
    with pytest.raises(MissingEntryError) as caught:
        transactions.pass_marker(header(7, 4, transactional=True), ControlType.ABORT)
    assert caught.value.offset == 4


@pytest.mark.parametrize("kind", list(ControlType))
def test_the_kind_of_a_marker(kind: ControlType) -> None:
    marker = b"before" + encode_end_txn_marker(EndTxnMarker(kind, 3), producer_id=7, producer_epoch=0, timestamp=5)
    assert marker_kind(marker, 6) == kind
    with pytest.raises(ProtocolError):
        marker_kind(marker[: 6 + 62], 6)
