"""``moldau tiers check``: mistakes in a file of tiers, without a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.exit_codes import FAILED
from moldau.cli.output import print_json, say
from moldau.cli.tiers_options import file_argument, opened

if TYPE_CHECKING:
    from moldau.tiers.checks import Finding
    from moldau.tiers.values import Tiers


@click.command("check")
@file_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(file: Path, as_json: bool) -> None:
    """Look for mistakes in FILE, with nothing running.

    Found are loops of mirrors, topics that no mirror brings to the aggregate of their category, clusters and topics without audit,
    retention that is shorter than a mirror may lag, addresses and tiers that are given twice.

    Exit code 1 for errors and warnings, 0 if there are only notices, or nothing.
    """
    tiers = opened(file)
    from moldau.mirror.loops import Severity
    from moldau.tiers.checks import find

    findings = find(tiers)
    if as_json:
        keys = ("file", "line", "severity", "check", "text")
        print_json(
            [dict(zip(keys, (str(file), each.line, each.severity.value, each.check.value, each.text), strict=True)) for each in findings]
        )
    else:
        for each in findings:
            say(shown(tiers, each))
        if not findings:
            say(f"{file}: nothing found")
    if any(each.severity is not Severity.NOTICE for each in findings):
        click.get_current_context().exit(FAILED)


def shown(tiers: "Tiers", finding: "Finding") -> str:
    """A finding as a line, as compilers print them."""
    return f"{tiers.topology.file}:{finding.line}: {finding.severity.value}: {finding.text}"
