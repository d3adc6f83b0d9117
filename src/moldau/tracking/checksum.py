"""What an event adds to the checksum of a set of events. Headers can be read without xxhash, which this needs."""

from xxhash import xxh64_intdigest

from moldau.tracking.header import HASH_SEED


def guid_hash(guid: bytes) -> int:
    """XXH64 with seed 42, unsigned."""
    return xxh64_intdigest(guid, HASH_SEED)
