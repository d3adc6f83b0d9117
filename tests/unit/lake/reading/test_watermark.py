"""What a stream has of its batch in its last column: the watermark, which is 0 where no batch has set it."""

import pyarrow as pa

from moldau.lake.reading.batch_order import BatchOrder
from moldau.lake.reading.watermark import with_watermark


def test_it_is_0_before_a_batch_has_set_it() -> None:
    rows = pa.record_batch({"offset": [1, 2]})
    for order, watermark in ((None, 0), (BatchOrder(9), 0), (BatchOrder(9, 7), 7)):
        (batch,) = with_watermark([rows], order)
        assert batch.to_pydict() == {"offset": [1, 2], "_watermark": [watermark, watermark]}
