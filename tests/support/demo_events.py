"""A file of events for the demonstration: of 50 keys, one in ten without a key, over ten days, two lines no events."""

import json
import random
from pathlib import Path

LINES = 2_000
STEP_MS = 432_000
BAD_LINES = (77, 1_500)


def write_events(path: Path) -> Path:
    """JSON lines; `at` is their time."""
    draw = random.Random(1)
    with path.open("w") as file:
        for number in range(1, LINES + 1):
            if number in BAD_LINES:
                file.write(f"line {number} is no event\n")
                continue
            event = {
                "id": number,
                "who": None if number % 10 == 0 else f"w{draw.randrange(50)}",
                "at": number * STEP_MS,
                "x": draw.random(),
            }
            file.write(json.dumps(event) + "\n")
    return path
