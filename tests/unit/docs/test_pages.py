"""What users read holds together: links lead somewhere, every page is linked, and no requirement of ours is named by its number."""

import re
from pathlib import Path

import pytest

from support.pages import PAGES, README, ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE = r"(?:P ?\d+(?:\.\d+)?|[A-Z]\d{1,2})"
HOUSE_REFERENCE = re.compile(rf"\b[Mm]issions? [A-Z]\d|\bfault [A-Z]\d|\({CODE}(?:(?:,| to| and|;) {CODE})*\)|[(;,] P \d")
"""Such as (H1), (missions H1 to H4), (P 4). They stand in decisions and tests."""

TEXTS = [README, ROOT / "CONTRIBUTING.md", *PAGES, *sorted((ROOT / "docs" / "formats").glob("*.md")), *sorted((ROOT / "src").rglob("*.py"))]
LINKED = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchor(heading: str) -> str:
    """As forges make it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_nothing_that_users_read_names_our_requirements_by_number() -> None:
    examples = ["(H1)", "(missions H1 to H4)", "(mission F1; P 4)", "(F1, F2, H1)", "(P 3.2)", "(fault T1)"]
    assert all(HOUSE_REFERENCE.search(text) for text in examples)
    assert [f"{name(path)}: {found.group()}" for path in TEXTS for found in HOUSE_REFERENCE.finditer(path.read_text())] == []


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if fragment:
            assert fragment in {anchor(heading) for heading in HEADING.findall(there.read_text())}, target


def test_the_readme_leads_to_every_page() -> None:
    linked = {(ROOT / target.partition("#")[0]).resolve() for target in LINK.findall(README.read_text())}
    assert [name(page) for page in PAGES if page.resolve() not in linked] == []


def test_how_to_install_an_extra_stands_in_the_readme_and_the_others_link_to_it() -> None:
    assert "`pip install 'moldau[" in README.read_text()
    assert [name(page) for page in PAGES if re.search(r"pip install '?moldau\[[a-z]", page.read_text())] == []


MODULE = re.compile(r"`([a-z_]+(?:/[a-z_]+)+)(?:\.py)?(?:\.\w+)*`")


def test_the_modules_that_the_architecture_names_exist() -> None:
    named = set(MODULE.findall((ROOT / "docs" / "architecture.md").read_text()))
    homes = [ROOT / "src" / "moldau", *(path for path in (ROOT / "src" / "moldau").iterdir() if path.is_dir())]
    assert len(named) > 50
    assert sorted(each for each in named if not any((home / each).is_dir() or (home / f"{each}.py").exists() for home in homes)) == []


RATE = re.compile(r"\d ?(?:µs|[kM]/s|MB/s)|\d[\d,]* ?(?:events|records|rows|messages|commits|msg)(?:/s| a second)")
"""A measured speed."""


def test_speeds_stand_in_one_page_and_the_others_link_to_it() -> None:
    assert RATE.search("92,000 events/s")
    assert RATE.search("takes 7.8 µs")
    others = [
        page for page in [README, *PAGES] if page.name not in ("performance.md", "configuration.md")
    ]  # configuration: the cost of a setting
    assert [f"{name(page)}: {found.group()}" for page in others for found in RATE.finditer(page.read_text())] == []
