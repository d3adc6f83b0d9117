"""The rooms that a request enters are those that the page on architecture shows."""

import subprocess
import sys
from itertools import pairwise

from support.pages import ROOT


def test_the_ways_of_the_page_are_those_of_the_tree() -> None:
    """Produce is handled once, and after that returns to its gate only, which has it answered."""
    done = subprocess.run([sys.executable, "tools/rooms_entered.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    paths = {line.partition(":")[0]: path.strip() for line, path in pairwise(lines) if path.startswith("  ")}
    assert sorted(paths) == ["fetch", "join group", "produce", "produce shortest"], done.stderr
    page = (ROOT / "docs" / "architecture.md").read_text()
    for path in paths.values():
        assert f"`{path}`" in page, path
    assert paths["produce shortest"] == "network(handlers(log, replicas), replicas(log, handlers(network)))"
    assert lines[-1].startswith("modules: ")
