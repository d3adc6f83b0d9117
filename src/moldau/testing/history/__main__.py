"""Check a history again that a run left in a file."""

import sys
from pathlib import Path

from moldau.testing.history.checker import check
from moldau.testing.history.saving import load

counts, shown = check(load(Path(sys.argv[1])))
sys.stdout.write(("\n".join(map(str, shown)) or "nothing is wrong") + "\n")
sys.exit(bool(counts))
