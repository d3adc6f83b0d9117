"""The lint finds each circle of imports, whatever kind its imports are, and nothing else."""

import subprocess
import sys
from pathlib import Path

from support.pages import ROOT

PLANTED = {
    "__init__": "",
    "low": "import os\nfrom collections import deque\n",
    "straight": "from planted import low\nfrom planted.low import deque\n",
    "late": "def run() -> None:\n    from planted import called\n    called.run()\n",
    "called": "import planted.late\n",
    "typed": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.second import Second\n",
    "second": "from planted.third import Third\nfrom planted.low import deque\n",
    "third": "from planted.typed import Typed\n",
    "above": "from planted.second import Second\nfrom planted import late\n",
    "rooms.__init__": "from planted.rooms.kitchen import cook\n",
    "rooms.kitchen": "from planted.rooms import bell\n",
    "rooms.bell": "import planted.low\n",
    "itself": "from planted.itself import more\n",
}


def lint(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "tools/check_circles.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_what_is_planted_is_found_and_nothing_else(tmp_path: Path) -> None:
    for name, text in PLANTED.items():
        path = tmp_path / "planted" / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code, said = lint(str(tmp_path / "planted"))
    blocks = [block.splitlines()[1:] for block in said.split("circle of ")[1:]]
    found = [sorted(Path(line.split(":")[0]).stem for line in block if line.startswith("  ")) for block in blocks]
    assert sorted(found) == [["called", "late"], ["itself"], ["second", "third", "typed"]], said
    assert f"{tmp_path / 'planted' / 'typed.py'}: imports planted.second" in said
    assert code == 1
