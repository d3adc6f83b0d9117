import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Copies a topic exactly once, as an application would be written with the Java client; the same as tests/support/copy_program.py. */
public class Copy {
    static final int FENCED = 3, BROKEN = 4;

    final String target;
    final KafkaProducer<byte[], String> producer;
    final KafkaConsumer<byte[], String> consumer;

    Copy(String bootstrap, String source, String target, String group, String transactionalId) {
        this.target = target;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("transactional.id", transactionalId);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("session.timeout.ms", "3000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("fetch.max.wait.ms", "50");
        settings.put("max.poll.records", "100");
        producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(source));
    }

    void step() {
        ConsumerRecords<byte[], String> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) return;
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        try {
            producer.beginTransaction();
            for (ConsumerRecord<byte[], String> record : records) {
                producer.send(new ProducerRecord<>(target, record.partition(), null, "copy of " + record.value()));
                ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            producer.commitTransaction();
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            throw fenced;
        } catch (KafkaException failure) {
            producer.abortTransaction();
            rewind();
        }
    }

    /** Back to what the group has committed: the consumer does not know that its transaction was aborted. */
    void rewind() {
        consumer.committed(consumer.assignment()).forEach((partition, place) -> consumer.seek(partition, place == null ? 0 : place.offset()));
    }

    public static void main(String[] arguments) {
        try {
            Copy copy = new Copy(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
            System.out.println("ready");
            while (true) copy.step();
        } catch (Throwable failure) {
            System.out.println(failure);
            Throwable cause = failure.getCause();
            boolean fenced = isFenced(failure) || cause != null && isFenced(cause);
            Runtime.getRuntime().halt(fenced ? FENCED : BROKEN);
        }
    }

    static boolean isFenced(Throwable failure) {
        return failure instanceof ProducerFencedException || failure instanceof InvalidProducerEpochException;
    }
}
