"""Kafka's Java classes read the batches that we build, in every codec, and see the same records."""

import subprocess
from pathlib import Path

import pytest

from moldau.protocol.records.batch import CREATE_TIME, Compression, Record, encode_batch
from support.maven import kafka_libraries

RECORDS = [
    Record(0, 1700000000000, CREATE_TIME, b"key", b"value", []),
    Record(1, 1700000000005, CREATE_TIME, None, b"", [("h", b"x"), ("k", None)]),
    Record(2, 1699999999990, CREATE_TIME, b"", None, []),
    Record(3, 1700000000300, CREATE_TIME, None, b"moldau " * 30000, []),
]


def java_hash(data: bytes | None) -> str:
    """java.util.Arrays.hashCode of signed bytes, after the length."""
    if data is None:
        return "null"
    code = 1
    for byte in data:
        code = (31 * code + byte - (256 if byte > 127 else 0)) & 0xFFFFFFFF
    return f"{len(data)}:{code - (1 << 32) if code >> 31 else code}"


def as_java_prints(record: Record) -> str:
    headers = "".join(f"/{name}={'null' if content is None else java_hash(content).split(':')[1]}" for name, content in record.headers)
    return f" {record.offset}/{record.timestamp}/{java_hash(record.key)}/{java_hash(record.value)}{headers}"


@pytest.mark.system
def test_java_reads_what_we_build() -> None:
    jars = kafka_libraries("4.3.0")
    batches = [encode_batch(RECORDS, compression=codec) for codec in Compression]
    program = Path(__file__).with_name("golden") / "JavaBatches.java"
    done = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(program), "read"],
        input="\n".join(batch.hex() for batch in batches),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    expected = "".join(as_java_prints(record) for record in RECORDS)
    assert done.stdout.splitlines() == [codec.name.lower() + expected for codec in Compression]
