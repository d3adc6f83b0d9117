"""The page about tiers has all keys of the file with their defaults, and examples that are what it says."""

import re

import pytest

from moldau.mirror.plan.file import KEYS_BETWEEN
from moldau.model.toml_table import PlanFileError
from moldau.tiers.checks import find
from moldau.tiers.file import parse_tiers, read_tiers
from support.pages import ROOT, block_with, blocks

PAGE = ROOT / "docs" / "tiers.md"
LAPTOP = ROOT / "examples" / "laptop.toml"
TABLE = re.compile(r"^\| (.*) \| default \| \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", re.MULTILINE)
ROW = re.compile(r"^\| (`.*?`) \| (?:`(.*?)` )?\|", re.MULTILINE)
REFERENCE = {title.strip("`"): ROW.findall(rows) for title, rows in TABLE.findall(PAGE.read_text())}
BASE = """\
name = "t"
[clusters.NAME]
kind = "local"
datacenter = "EWR"
port = 1
[categories.tracking]
clusters = { EWR = "NAME" }
[topics.NAME]
category = "tracking"
[registries.NAME]
cluster = "NAME"
port = 2
[mirrors.NAME]
from = ["NAME"]
to = "NAME"
mode = "merge"
topics.include = [".*"]
[auditors.NAME]
[loads.NAME]
cluster = "NAME"
topics = ["x"]
[limits]
"""


def known(header: str) -> list[str]:
    """The keys that the reader names where it finds one that it does not know."""
    header = header.replace("categories.NAME", "categories.tracking")
    with pytest.raises(PlanFileError, match=r"zzz: not known; there are ") as caught:
        parse_tiers(BASE.replace(f"{header}\n", f"{header}\nzzz = 1\n"), "t.toml")
    return str(caught.value).partition("there are ")[2].split(", ")


@pytest.mark.parametrize("section", [name for name in REFERENCE if name.startswith("[")])
def test_the_tables_have_the_keys_that_the_reader_knows(section: str) -> None:
    keys = [key for cell, _ in REFERENCE[section] for key in re.findall(r"`(.*?)`", cell)]
    assert sorted(known(section)) == sorted(keys)


def test_the_keys_of_a_mirror_are_those_of_its_own_file() -> None:
    keys = [key for cell, _ in REFERENCE["[mirrors.NAME]"] for key in re.findall(r"`(.*?)`", cell)]
    assert keys[3:] == list(KEYS_BETWEEN)


def test_the_defaults_are_those_of_the_reader() -> None:
    """Claim: a file that gives the defaults of the page is the same as one that gives none."""
    text = BASE
    for section, rows in REFERENCE.items():
        header = section.replace("categories.NAME", "categories.tracking")
        given = "".join(f"{cell.strip('`')} = {default}\n" for cell, default in rows if default)
        text = text.replace(f"{header}\n", f"{header}\n{given}")
    assert text.count("\n") == BASE.count("\n") + 9
    with_defaults, without = parse_tiers(text, "t.toml"), parse_tiers(BASE, "t.toml")
    assert [each.settings for each in with_defaults.topology.clusters.values()] == [{}]
    assert with_defaults.lag_max_ms == without.lag_max_ms
    assert [each.interval_s for each in with_defaults.auditors] == [each.interval_s for each in without.auditors]
    assert [each.instances for each in with_defaults.mirrors] == [each.instances for each in without.mirrors]


def test_the_part_of_the_example_is_in_it() -> None:
    assert blocks(PAGE, "toml")[0] in LAPTOP.read_text()


def test_the_commands_of_the_page_are_for_the_example() -> None:
    names = {topic.name for topic in read_tiers(LAPTOP).topics}
    assert "produce departures" in block_with(PAGE, "sh", "produce")
    assert names == {"departures"}


def test_the_finding_of_the_page_is_one_of_ours() -> None:
    back = '[mirrors.back]\nfrom = ["aggregate"]\nto = "ewr"\nmode = "copy"\ntopics.include = ["departures"]\n'
    (shown,) = re.findall(r"^    laptop\.toml:(\d+): error: (.*)$", PAGE.read_text(), re.MULTILINE)
    found = find(parse_tiers(LAPTOP.read_text() + back, "laptop.toml"))
    assert shown in [(str(each.line), each.text) for each in found]
