"""What the examples need of topics, by any client of Kafka's: here confluent-kafka."""

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def ensure_topic(bootstrap: str, topic: str) -> bool:
    """Create the topic, with one partition; False if it was there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic(topic, 1)])[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def produce(bootstrap: str, topic: str, records: Iterable[tuple[str, str]]) -> None:
    """Keys and values, and wait until all are written."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in records:
        producer.produce(topic, value, key)
    if left := producer.flush(30):
        raise TimeoutError(f"{left} records were not written to {topic} within 30 s")


def print_rows(bootstrap: str, topic: str) -> None:
    """The values of a topic, to its end; of transactions those that are committed."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "example", "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    while (message := consumer.poll(30)) is not None and message.error() is None:
        print((message.value() or b"").decode())
    consumer.close()
