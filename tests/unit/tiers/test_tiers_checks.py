"""Mistakes in tiers are found by the file alone, each with its line (missions G1, H2, A11)."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.cli.application import application
from moldau.tiers.checks import find
from moldau.tiers.file import parse_tiers, read_tiers
from support.pages import ROOT

GOOD = """\
name = "good"
limits.mirror.lag.max.ms = 86400000
[clusters.ewr]
kind = "local"
datacenter = "EWR"
port = 1000
[clusters.jfk]
kind = "local"
datacenter = "JFK"
port = 1001
[clusters.all]
kind = "aggregate"
datacenter = "EWR"
port = 1002
[categories.tracking]
clusters = { EWR = "ewr", JFK = "jfk" }
aggregates = ["all"]
[topics.orders]
category = "tracking"
[topics.clicks]
category = "tracking"
[mirrors.merge]
from = ["ewr", "jfk"]
to = "all"
mode = "merge"
topics.include = [".*"]
[auditors.ewr]
[auditors.jfk]
[auditors.all]
"""
AUDITED = """\
topics.include = [".*"]
audit.tier = "aggregate"
[auditors.ewr]
[auditors.jfk]
"""
"""The mirror counts the aggregate."""
BACK = """\
[mirrors.back]
from = ["all"]
to = "ewr"
mode = "copy"
topics.include = ["orders"]
"""


def found(text: str) -> list[str]:
    """Line, severity and text of each finding."""
    return [f"{each.line} {each.severity.value} {each.text}" for each in find(parse_tiers(text, "t.toml"))]


def test_there_is_nothing_to_find_in_what_fits_together() -> None:
    assert found(GOOD) == []
    assert find(read_tiers(ROOT / "examples" / "laptop.toml")) == []


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        # addresses and tiers
        ("port = 1001", "port = 1000", ["7 error cluster jfk: cluster ewr has the address 127.0.0.1:1000 already"]),
        (
            "[auditors.all]\n",
            '[auditors.all]\ntier = "ewr"\n',
            ["29 error auditor all: auditor ewr publishes its counts as tier ewr already, and a tier is one cluster or one load"],
        ),
        # a local cluster, or a topic of it, that does not get to the aggregate
        (
            'from = ["ewr", "jfk"]',
            'from = ["ewr"]',
            ["15 error category tracking: no mirror brings topics orders, clicks from jfk to all"],
        ),
        (
            'include = [".*"]',
            'include = ["orders"]',
            [f"15 error category tracking: no mirror brings topic clicks from {cluster} to all" for cluster in ("ewr", "jfk")],
        ),
        # a loop
        (
            "[auditors.ewr]\n",
            f"{BACK}[auditors.ewr]\n",
            [
                "22 error mirrors merge, back: a loop with a copy in it: records would circle for ever: cluster all, ewr; topic orders",
            ],
        ),
        # audit
        ('topics.include = [".*"]\n[auditors.ewr]\n[auditors.jfk]\n[auditors.all]\n', AUDITED, []),
        (
            'topics.include = [".*"]\n[auditors.ewr]\n',
            'topics.include = [".*"]\naudit.tier = "ewr"\n[auditors.ewr]\n',
            [
                (
                    "22 error auditor of mirror merge: auditor ewr publishes its counts as tier ewr already, "
                    "and a tier is one cluster or one load"
                )
            ],
        ),
        ("[auditors.jfk]\n", "", ["7 warning cluster jfk: no auditor counts it, so a loss on the way to it is not found"]),
        (
            "[auditors.jfk]\n",
            '[auditors.jfk]\ntopics = "orders"\n',
            ["28 warning auditor jfk: does not count topic clicks of cluster jfk"],
        ),
        # retention: of a topic, of a cluster
        (
            "[topics.clicks]\n",
            "[topics.clicks]\nconfigs = { retention.ms = 3600000 }\n",
            [
                f"20 error cluster {cluster} keeps topic clicks for 3,600,000 ms, and mirror merge may lag 86,400,000 ms "
                "([limits] mirror.lag.max.ms): retention would delete records before they are mirrored"
                for cluster in ("ewr", "jfk")
            ],
        ),
        (
            "port = 1001\n",
            "port = 1001\nsettings.log.retention.minutes = 60\n",
            [
                f"7 error cluster jfk keeps topic {topic} for 3,600,000 ms, and mirror merge may lag 86,400,000 ms "
                "([limits] mirror.lag.max.ms): retention would delete records before they are mirrored"
                for topic in ("clicks", "orders")
            ],
        ),
        ("[topics.clicks]\n", '[topics.clicks]\nconfigs = { retention.ms = 3600000, cleanup.policy = "compact" }\n', []),
    ],
)
def test_each_mistake_is_found_with_its_line(right: str, wrong: str, expected: list[str]) -> None:
    assert right in GOOD
    assert found(GOOD.replace(right, wrong, 1)) == expected


def test_a_category_without_topics_needs_a_way_of_mirrors_to_its_aggregate() -> None:
    text = GOOD.replace('[topics.orders]\ncategory = "tracking"\n[topics.clicks]\ncategory = "tracking"\n', "")
    assert found(text) == []
    assert found(text.replace('from = ["ewr", "jfk"]', 'from = ["ewr"]')) == [
        "15 error category tracking: no mirror brings what it has from jfk to all"
    ]


def test_the_command_prints_findings_as_compilers_do_and_ends_with_1_if_there_are_any(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"

    def check(text: str, *options: str) -> tuple[int, str]:
        file.write_text(text)
        done = CliRunner().invoke(application, ["tiers", "check", str(file), *options])
        return done.exit_code, done.output

    assert check(GOOD) == (0, f"{file}: nothing found\n")
    assert check(GOOD, "--json") == (0, "[]\n")
    code, output = check(GOOD.replace("[auditors.jfk]\n", ""))
    assert (code, output) == (1, f"{file}:7: warning: cluster jfk: no auditor counts it, so a loss on the way to it is not found\n")
    code, output = check(GOOD.replace("port = 1001", "port = 1000"), "--json")
    assert code == 1
    (finding,) = json.loads(output)
    assert (finding["line"], finding["severity"], finding["check"]) == (7, "error", "address twice")
    # what is no file of tiers at all is an error with its line
    assert check("name = 3") == (1, f"Error: {file}:1: clusters: is missing; each cluster is a table with its name, as [clusters.ewr]\n")


def test_up_refuses_a_file_with_errors_and_starts_nothing(tmp_path: Path) -> None:
    file, data = tmp_path / "t.toml", tmp_path / "data"
    file.write_text(GOOD.replace("port = 1001", "port = 1000"))
    done = CliRunner().invoke(application, ["tiers", "up", str(file), "--data", str(data)])
    assert done.exit_code == 1
    assert "7: error: cluster jfk" in done.output
    assert "an error; nothing was started" in done.output
    assert not data.exists()
