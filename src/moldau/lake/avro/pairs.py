"""Values of one writer's schema into the columns of one reader's: the fast way, and row by row what that cannot follow or doubts."""

from typing import Any

import numpy as np
import pyarrow as pa

from moldau.lake.avro.fast import compile_pair
from moldau.lake.avro.rows import RowDecoder
from moldau.lake.avro.schemas import AvroSchema
from moldau.lake.avro.vectors import Bytes, Int64s


class PairDecoder:
    """Decodes bodies of one writer's schema. AvroSchemaError for a pair of schemas that cannot be decoded at all."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._rows = RowDecoder(writer, reader)
        self._fast = compile_pair(writer, reader)

    @property
    def is_fast(self) -> bool:
        """Whether numpy can follow this pair."""
        return self._fast is not None

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> tuple[Any, Int64s, dict[int, str]]:
        """A record batch of the bodies that could be decoded, their numbers in order, and the reasons why the others could not."""
        if self._fast is None:
            return self._slowly(data, starts, ends, np.arange(len(starts)))
        batch, doubtful = self._fast.decode(data, starts, ends)
        if not doubtful.any():
            return batch, np.arange(len(starts)), {}
        slow, numbers, rejected = self._slowly(data, starts, ends, np.flatnonzero(doubtful))
        numbers = np.concatenate([np.flatnonzero(~doubtful), numbers])
        order = np.argsort(numbers, kind="stable")
        return pa.concat_batches([batch, slow]).take(pa.array(order)), numbers[order], rejected

    def _slowly(self, data: Bytes, starts: Int64s, ends: Int64s, chosen: Int64s) -> tuple[Any, Int64s, dict[int, str]]:
        view = memoryview(data.octets)  # type: ignore[arg-type]  # arrays of numpy are buffers
        bodies = (view[start:end] for start, end in zip(starts[chosen].tolist(), ends[chosen].tolist(), strict=True))
        batch, accepted, rejected = self._rows.decode(bodies)
        return batch, chosen[np.array(accepted, np.int64)], {int(chosen[number]): reason for number, reason in rejected.items()}
