"""References from one schema to others, as clients name them."""

from typing import NamedTuple


class Reference(NamedTuple):
    """Schema text may use `name` (an Avro name, a URL of JSON Schema, a file of Protobuf): it is this version of this subject."""

    name: str
    subject: str
    version: int
