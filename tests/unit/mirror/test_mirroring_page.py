"""The page about a mirror's file has all keys with their defaults, and examples that are what it says."""

import re
from pathlib import Path

import pytest

from moldau.mirror.loops import Kind
from moldau.mirror.naming import Naming
from moldau.mirror.plan.file import parse_plan
from moldau.mirror.plan.start import FromOffset, FromTime, LogBound
from moldau.mirror.plan.values import Mode, Partitioning
from moldau.model.identity import Offset, TimestampMs
from moldau.model.toml_table import PlanFileError
from support.pages import ROOT, blocks

PAGE = ROOT / "docs" / "mirroring.md"
STANDBY, AGGREGATE, OFFLINE = (parse_plan(text, "page.toml") for text in blocks(PAGE, "toml"))
TABLE = re.compile(r"^\| (.*) \| default \| \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", re.MULTILINE)
ROW = re.compile(r"^\| `(.*?)` \| (?:`(.*?)` )?\|", re.MULTILINE)
REFERENCE = {title.strip("`"): dict(ROW.findall(rows)) for title, rows in TABLE.findall(PAGE.read_text())}
"""By the header of a table of the file: its keys, and their defaults as TOML."""
TOP = "top of the file"

MERGE = """\
name = "m"
mode = "merge"
sources.NAME.bootstrap.servers = "a:1"
target.bootstrap.servers = "b:1"
topics.include = ["a"]
"""
COPY = MERGE.replace("merge", "copy").replace("sources.NAME", "source")
SECTIONS = [name for name in REFERENCE if name != TOP]


def known(text: str) -> list[str]:
    """The keys that the reader names where it finds one that it does not know."""
    with pytest.raises(PlanFileError, match=r"zzz: not known; there are ") as caught:
        parse_plan(text, "m.toml")
    return str(caught.value).partition("there are ")[2].partition(";")[0].split(", ")


@pytest.mark.parametrize("section", SECTIONS)
def test_the_tables_have_the_keys_that_the_reader_knows(section: str) -> None:
    path = section.strip("[]").replace("start.topics.NAME", "start.topics.a")
    base = COPY if section == "[source]" else MERGE
    assert known(f"{base}{path}.zzz = 1") == list(REFERENCE[section])


def test_the_top_and_the_sections_are_all_that_a_file_has() -> None:
    sections = [section.strip("[]").partition(".")[0] for section in SECTIONS]
    assert known(f"zzz = 1\n{MERGE}") == [*REFERENCE[TOP], *dict.fromkeys(sections)]


def test_the_defaults_are_those_of_the_reader() -> None:
    """Claim: a file that gives every default of the page is the same as one that gives none."""
    given = [
        f"{'' if section == TOP else section.strip('[]') + '.'}{key} = {default}\n"
        for section, keys in REFERENCE.items()
        if section != "[start.topics.NAME]"
        for key, default in keys.items()
        if default
    ]
    assert len(given) == 20
    assert parse_plan(MERGE + "".join(given), "m.toml") == parse_plan(MERGE, "m.toml")


def test_the_standby_has_all_topics_but_tests_and_the_offsets_of_all_groups() -> None:
    assert STANDBY.mode is Mode.COPY
    assert STANDBY.selection.of(["orders", "test-orders", "mm2.internal", "_schemas"]) == ("orders",)
    assert STANDBY.groups.patterns.matches("billing")


def test_the_aggregate_merges_by_key_and_starts_one_source_later() -> None:
    assert (AGGREGATE.mode, AGGREGATE.naming, AGGREGATE.partitioning) == (Mode.MERGE, Naming.TOPIC, Partitioning.KEY)
    east, west = AGGREGATE.sources
    assert east.start.of("orders", 0) is LogBound.EARLIEST
    assert west.start.of("orders", 0) == FromTime(TimestampMs(1793491200000))
    assert AGGREGATE.audit_tier == "aggregate"


def test_the_chain_continues_from_the_aggregate() -> None:
    assert OFFLINE.sources[0].bootstrap_servers == AGGREGATE.target.bootstrap_servers
    start = OFFLINE.sources[0].start
    assert start.of("orders", 0) is LogBound.LATEST
    assert [start.of("web.clicks", partition) for partition in range(3)] == [FromOffset(Offset(each)) for each in (500, 740, 1000)]


def test_the_error_of_the_page_is_one_of_ours() -> None:
    text = blocks(PAGE, "toml")[1].replace("web[.].*", "web[.*")
    (shown,) = re.findall(r"^    aggregate\.toml:(.*)$", PAGE.read_text(), re.MULTILINE)
    with pytest.raises(PlanFileError, match=rf"^aggregate\.toml:{re.escape(shown)}$"):
        parse_plan(text, "aggregate.toml")


def test_the_findings_of_the_page_are_those_there_are_in_their_order() -> None:
    rows = re.findall(r"^\| (.*?) \| (error|warning|notice)\b", PAGE.read_text(), re.MULTILINE)
    assert [severity for _, severity in rows] == [kind.severity.value for kind in Kind]


def test_the_program_of_the_page_finds_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("there.toml", "back.toml"):
        Path(name).write_text(blocks(PAGE, "toml")[0])
    (program,) = blocks(PAGE, "python")
    exec(program, {})
    assert capsys.readouterr().out.startswith("warning mirror standby (there.toml), mirror standby (back.toml): copies in both directions")
