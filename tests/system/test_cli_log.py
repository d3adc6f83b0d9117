"""`moldau log` reads a stopped broker's files: it prints what is there, finds what is damaged, and changes nothing."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from support.console import Console
from support.server import ServerProcess

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with topic `events`, one partition, two batches, after a clean stop."""
    data = tmp_path_factory.mktemp("data")
    with ServerProcess(data) as server:
        moldau = Console(server.bootstrap)
        moldau.ok("topic", "create", "events", "--partitions", "1")
        moldau.ok("produce", "events", "--key-separator", ":", "-H", "h=1", text="a:1\nb:2\n")
        moldau.ok("produce", "events", "--compression", "zstd", text=b"c" * 500 + b"\n\xff\n")
    return data


def segment(data: Path) -> Path:
    (found,) = data.rglob("events-0/*.log")
    return found


def fingerprint(data: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(data.rglob("*")) if path.is_file()}


def test_a_segment_is_dumped_batch_by_batch(written: Path) -> None:
    moldau = Console()
    batches = moldau.ok("log", "dump", str(segment(written)), "--json").json_lines
    assert [(b["row"], b["base_offset"], b["last_offset"], b["compression"], b["valid"]) for b in batches] == [
        ("batch", 0, 1, "none", True),
        ("batch", 2, 3, "zstd", True),
    ]
    rows = moldau.ok("log", "dump", str(segment(written)), "--json", "--records").json_lines
    records = [row for row in rows if row["row"] == "record"]
    assert [(r["offset"], r["key"], r["value"], r["headers"]) for r in records] == [
        (0, "a", "1", [["h", "1"]]),
        (1, "b", "2", [["h", "1"]]),
        (2, None, "c" * 500, []),
        (3, None, {"base64": "/w=="}, []),
    ]
    text = moldau.ok("log", "dump", str(segment(written)), "--records").lines
    assert text[0].startswith("batch position=0 ")
    assert text[1].startswith("  record offset=0 ")
    assert "key=a value=1 headers=h:1" in text[1]


def test_every_kind_of_file_is_dumped(written: Path) -> None:
    moldau = Console()
    for path in sorted(written.rglob("*")):
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot") or "checkpoint" in path.name or path.name == "partition.metadata":
            assert moldau.ok("log", "dump", str(path), "--json").json_lines is not None, path


def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello")
    done = Console()("log", "dump", str(file))
    assert done.code == 1
    assert done.err.startswith(f"Error: {file}: the name is not that of")


def test_a_sound_directory_is_said_to_be_sound_and_left_as_it_is(written: Path) -> None:
    before = fingerprint(written)
    done = Console().ok("log", "verify", str(written), "--records")
    assert done.lines[0].startswith("OK: ")
    report = Console().ok("log", "verify", str(written), "--json").json
    assert report["sound"] is True
    assert report["checked"]["batches"] == 2
    assert fingerprint(written) == before


def test_damage_is_found_and_has_its_place(written: Path, tmp_path: Path) -> None:
    data = tmp_path / "copy"
    for path in written.rglob("*"):
        if path.is_file():
            target = data / path.relative_to(written)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    damaged = segment(data)
    content = bytearray(damaged.read_bytes())
    second = json.loads(Console().ok("log", "dump", str(damaged), "--json").lines[1])["position"]
    content[second + 61] ^= 0xFF
    damaged.write_bytes(content)
    done = Console()("log", "verify", str(data))
    assert done.code == 1
    assert done.lines[0].startswith("DAMAGED: 1 file; ")
    assert done.lines[1].startswith(f"damage: {damaged}, byte {second}: ")
    assert "To do: restore it from a backup" in done.lines[1]
    report = Console()("log", "verify", str(data), "--json")
    assert (report.code, report.json["sound"]) == (1, False)
    assert [finding["position"] for finding in report.json["findings"] if finding["severity"] == "damage"][:1] == [second]
    dumped = Console()("log", "dump", str(damaged))
    assert (dumped.code, "1 damaged place" in dumped.err) == (1, True)


def test_notes_are_shown_on_demand(written: Path, tmp_path: Path) -> None:
    """What the broker mends by itself is no damage, and not in the way of the verdict."""
    data = tmp_path / "copy"
    shutil.copytree(written, data)
    (data / "events-0" / "00000000000000000000.log.deleted").write_bytes(b"")
    quiet = Console().ok("log", "verify", str(data)).lines
    assert quiet[0].startswith("OK: ")
    assert quiet[1] == "1 note: --notes shows it"
    loud = Console().ok("log", "verify", str(data), "--notes").lines
    assert loud[0] == quiet[0]
    assert loud[1].startswith(f"note: {data}/events-0/00000000000000000000.log.deleted")


def test_a_lost_folder_is_accepted_by_a_command_that_the_log_names(written: Path, tmp_path: Path) -> None:
    data = tmp_path / "copy"
    shutil.copytree(written, data)
    shutil.rmtree(data / "events-0")
    with ServerProcess(data) as server:
        moldau = Console(server.bootstrap)
        assert moldau("produce", "events", "--timeout", "2s", text="x\n").code != 0
        moldau.ok("topic", "create", "other")
        lines = "".join(server.output)
        assert f"{data}/events-0 is missing, and all records of the partition with it" in lines
        assert f"moldau log accept-loss {data} events-0" in lines
    never = Console()("log", "accept-loss", str(data), "nothing-0")
    assert (never.code, "never held" in never.err) == (2, True)
    assert "next start" in Console().ok("log", "accept-loss", str(data), "events-0").out
    with ServerProcess(data) as server:
        moldau = Console(server.bootstrap)
        moldau.ok("produce", "events", text="x\n")
        assert moldau.ok("consume", "events", "--until-end").lines == ["x"]
        refused = [moldau("log", "accept-loss", str(data), "events-0")]
    refused.append(Console()("log", "accept-loss", str(data), "events-0"))
    for each in refused:
        assert (each.code, each.out) == (2, "")
        assert f"Error: {data}/events-0: no record is lost" in each.err
    assert not (data / ".moldau_accepted_loss").exists()


def test_a_directory_that_is_no_logs_is_refused(tmp_path: Path) -> None:
    done = Console()("log", "verify", str(tmp_path))
    assert done.code == 1
    assert "sound" not in done.out
    assert done.err == f"Error: {tmp_path}: there is no log here, neither meta.properties nor a segment\n"
