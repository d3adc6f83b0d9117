"""The options of the format ``moldau`` as a sink: names and meanings of Spark's Kafka connector where it has them.

An option that is unknown, misspelt or at odds with another one is refused by name, before anything is written.
"""

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from moldau.lake.reading.offsets import OptionError
from moldau.lake.reading.options import choice, duration_ms, flag, number, spelt_right
from moldau.lake.writing.decisions import DECISIONS_TOPIC
from moldau.lake.writing.producing import ACKS_ALL
from moldau.protocol.records.compression import Compression

_BOOTSTRAP = "kafka.bootstrap.servers"
_CODECS = tuple(codec.name.lower() for codec in Compression)
_ALIASES = {
    "kafka.acks": "acks",
    "kafka.compression.type": "compression",
    "kafka.transaction.timeout.ms": "transactionTimeout",
}
_OWN = ("topic", "acks", "compression", "includeHeaders", "transactional")
_TRANSACTIONAL = ("queryName", "batchId", "queryRun", "transactionTimeout", "decisionsTopic", "lostBatch")
_KAFKA = ("kafka.client.id", "kafka.batch.size", "kafka.request.timeout.ms", "kafka.delivery.timeout.ms")
_SPARKS = ("checkpointLocation",)
"""Spark hands its own options of a stream on to the sink."""
NAMES = (_BOOTSTRAP, *_OWN, *_TRANSACTIONAL, *_KAFKA, *_SPARKS, *_ALIASES)
"""Every option there is."""
TRANSACTION_TIMEOUT_MS = 900_000
"""What brokers allow by default (`transaction.max.timeout.ms`)."""
_BATCH_BYTES = 1_000_000
"""Fits into `max.message.bytes` as brokers have it by default."""
_QUERY_BYTES_MAX = 200
_AGAIN, _SKIP = "again", "skip"
NO_BATCH_ID = 0
NO_RUN = ""
"""Stands in the decisions of batches whose numbers are a person's."""


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """How a write that is seen whole or not at all is done."""

    query: str
    """Who writes: the same name after a restart."""
    named: bool
    """Whether a person gave the name; otherwise it is used once."""
    batch: int | None
    """The number of a batch write; a stream's come from Spark."""
    timeout_ms: int
    decisions_topic: str
    lost_batch: tuple[int, bool] | None
    """The number of a batch that lost transactions after its decision, and whether to skip it, or else write it again."""
    run: str = NO_RUN
    """Of a batch: which run of the query its number belongs to; in a new one the numbers begin again."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What to write to and how. Times in ms, sizes in bytes."""

    bootstrap: str
    topic: str | None
    """None: the column `topic` names it."""
    client_id: str
    acks: int
    compression: Compression
    include_headers: bool
    batch_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    transactions: TransactionOptions | None


def parse_write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Options as Spark hands them over (names in any case). OptionError names the first one that is wrong."""
    if any(name.lower() == "path" for name in given):
        raise OptionError("path", "there is no path to write to; name the topic with the option topic and call save() or start() alone")
    options = spelt_right(given, NAMES, _ALIASES)
    if not options.get(_BOOTSTRAP, "").strip():
        raise OptionError(_BOOTSTRAP, "is needed: HOST:PORT of one or more brokers")
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic", "is empty")
    transactional = flag(options, "transactional", default=False)
    if not transactional:
        _refuse_transactional(options, streaming=streaming)
    acks = choice(options, "acks", ("all", "-1", "1"), "all")
    if transactional and acks == "1":
        raise OptionError("acks", "is all with transactional=true")
    return WriteOptions(
        bootstrap=options[_BOOTSTRAP].strip(),
        topic=topic,
        client_id=options.get("kafka.client.id", "moldau-spark"),
        acks=1 if acks == "1" else ACKS_ALL,
        compression=Compression[choice(options, "compression", _CODECS, "none").upper()],
        include_headers=flag(options, "includeHeaders", default=True),
        batch_bytes=number("kafka.batch.size", options.get("kafka.batch.size", str(_BATCH_BYTES)), 1),
        request_timeout_ms=number("kafka.request.timeout.ms", options.get("kafka.request.timeout.ms", "30000"), 1),
        delivery_timeout_ms=number("kafka.delivery.timeout.ms", options.get("kafka.delivery.timeout.ms", "120000"), 1),
        transactions=_transactions(options, streaming=streaming) if transactional else None,
    )


def _refuse_transactional(options: Mapping[str, str], *, streaming: bool) -> None:
    for name in _TRANSACTIONAL:
        if name in options and not (streaming and name == "queryName"):
            raise OptionError(name, "has no meaning without transactional=true")


def _transactions(options: Mapping[str, str], *, streaming: bool) -> TransactionOptions:
    name = options.get("queryName", "").strip()
    if len(name.encode()) > _QUERY_BYTES_MAX:
        raise OptionError("queryName", f"has at most {_QUERY_BYTES_MAX} bytes")
    batch = number("batchId", options["batchId"], 0) if "batchId" in options else None
    if streaming:
        if batch is not None:
            raise OptionError("batchId", "is Spark's own in a stream")
        if "queryRun" in options:
            raise OptionError("queryRun", "is Spark's own in a stream")
        query = name or _name_of_checkpoint(options.get("checkpointLocation", "").strip())
    else:
        if (batch is None) == bool(name):
            missing, there = ("batchId", "queryName") if name else ("queryName", "batchId")
            reason = "a batch is written once under a name and a number that rises; without both it is written again each time"
            raise OptionError(missing, f"is needed with {there}: {reason}")
        if "queryRun" in options and not name:
            raise OptionError("queryName", "is needed with queryRun, which tells its runs apart")
        query = name or str(uuid.uuid4())
    return TransactionOptions(
        query=query,
        named=bool(name) or streaming,
        batch=None if streaming else batch or NO_BATCH_ID,
        timeout_ms=max(1, duration_ms("transactionTimeout", options.get("transactionTimeout", f"{TRANSACTION_TIMEOUT_MS}ms"))),
        decisions_topic=options.get("decisionsTopic", DECISIONS_TOPIC),
        lost_batch=_lost_batch(options["lostBatch"]) if "lostBatch" in options else None,
        run=options.get("queryRun", NO_RUN),
    )


def _name_of_checkpoint(location: str) -> str:
    """A name that a query without one has after every restart: made from where its checkpoint is."""
    if not location:
        raise OptionError("queryName", "is needed for transactional=true: by name a query finds after a restart what it left open")
    return "checkpoint-" + hashlib.sha256(location.rstrip("/").encode()).hexdigest()[:16]


def _lost_batch(text: str) -> tuple[int, bool]:
    digits, _, word = text.strip().partition(":")
    if not digits.isdecimal() or word.lower() not in (_AGAIN, _SKIP):
        raise OptionError("lostBatch", f"is the number of a batch followed by :skip or :again, as 7:skip; not {text!r}")
    return int(digits), word.lower() == _SKIP
