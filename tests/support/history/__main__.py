"""Check a history again that a run left in a file."""

import sys
from pathlib import Path

from support.history.checker import check
from support.history.saving import load

counts, shown = check(load(Path(sys.argv[1])))
print("\n".join(map(str, shown)) or "nothing is wrong")
sys.exit(bool(counts))
