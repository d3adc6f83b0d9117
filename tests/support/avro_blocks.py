"""An Avro encoder that cuts arrays and maps into blocks as it likes. fastavro's puts all items into one."""

import random
from typing import Any

from support.avro_registry import encoded


class BlockEncoder:
    """Encodes values; the blocks have any number of items, and some say how many bytes they take, or something else."""

    def __init__(self, seed: int, *, repeats_names: bool = False) -> None:
        self._chance = random.Random(seed)
        self._repeats_names = repeats_names

    def encode(self, schema: Any, value: Any) -> bytes:
        """Avro binary; with `repeats_names` some maps have every name twice."""
        match schema:
            case {"type": "record", "fields": fields}:
                return b"".join(self.encode(each["type"], value[each["name"]]) for each in fields)
            case {"type": "array", "items": items}:
                return self._blocks([self.encode(items, each) for each in value])
            case {"type": "map", "values": values}:
                entries = [encoded("string", name) + self.encode(values, each) for name, each in value.items()]
                return self._blocks(entries * (2 if self._repeats_names and self._chance.random() < 0.2 else 1))
            case [*branches]:
                number = next(number for number, branch in enumerate(branches) if (branch == "null") == (value is None))
                return varint(number) + self.encode(branches[number], value)
            case _:
                return encoded(schema, value)

    def _blocks(self, items: list[bytes]) -> bytes:
        written = b""
        while items:
            count = self._chance.randint(1, len(items))
            block, items = b"".join(items[:count]), items[count:]
            size = len(block) if self._chance.random() < 0.8 else self._chance.randint(-9, 9)
            written += (varint(count) if self._chance.random() < 0.5 else varint(-count) + varint(size)) + block
        return written + varint(0)


def varint(number: int) -> bytes:
    """A long."""
    return encoded("long", number)
