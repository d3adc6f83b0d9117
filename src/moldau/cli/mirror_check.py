"""``moldau mirror check``: what is wrong with mirrors before they run."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.exit_codes import FAILED
from moldau.cli.mirror_file import FILE
from moldau.cli.options import json_option, timeout_option
from moldau.cli.output import print_json, say

if TYPE_CHECKING:
    from moldau.mirror.checks import Found


@click.command("check")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@json_option
@timeout_option(10.0)
def check(files: tuple[Path, ...], as_json: bool, timeout: float) -> None:
    """Read the files of mirrors and ask their clusters: loops, topics that are missing, rights, clusters that do not answer.

    Nothing is changed. Exit code 1 if there is an error among the findings; warnings and notices are none.
    """
    from moldau.mirror.loops import Severity

    found = _found(files, timeout)
    order = list(Severity)
    found.sort(key=lambda each: order.index(each.severity))
    if as_json:
        print_json([{"severity": each.severity.value, "file": each.file or None, "text": each.text} for each in found])
    else:
        for each in found:
            say(f"{each.severity.value}: {f'{each.file}: ' if each.file else ''}{each.text}")
        if not found:
            say("nothing found")
    if any(each.severity is Severity.ERROR for each in found):
        click.get_current_context().exit(FAILED)


def _found(files: tuple[Path, ...], timeout_s: float) -> "list[Found]":
    from moldau.mirror.checks import Found, check_files, check_together
    from moldau.mirror.loops import Severity
    from moldau.mirror.plan.file import read_plan
    from moldau.model.toml_table import PlanFileError

    found, plans = [], {}
    once: dict[Path, Path] = {}
    for file in files:
        once.setdefault(file.resolve(), file)
    for file in once.values():
        try:
            plans[str(file)] = read_plan(file)
        except PlanFileError as error:
            found.append(Found(Severity.ERROR, "", str(error)))
    checked = check_files(plans, timeout_s)
    return [*found, *(each for one in checked for each in one.found), *check_together(checked)]
