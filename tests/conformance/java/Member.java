import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** A member of a group with the Java client: says what it is given and what it takes; see tests/support/group_members.py for the words. */
public class Member implements ConsumerRebalanceListener {
    final String topic;
    final KafkaConsumer<byte[], byte[]> consumer;
    /** Per partition: the first offset that was polled and is not committed. */
    final Map<TopicPartition, Long> untaken = new HashMap<>();
    /** And the offset behind the last. */
    final Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
    final Metric closedConnections;

    Member(String bootstrap, String topic, String group, String assignor, String instance) {
        this.topic = topic;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "10000");
        settings.put("heartbeat.interval.ms", "300");
        settings.put("fetch.max.wait.ms", "50");
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        if (!instance.isEmpty()) settings.put("group.instance.id", instance);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        consumer = new KafkaConsumer<>(settings);
        closedConnections = consumer.metrics().values().stream()
                .filter(each -> each.metricName().name().equals("connection-close-total"))
                .filter(each -> each.metricName().group().equals("consumer-metrics"))
                .findFirst().orElseThrow();
        consumer.subscribe(List.of(topic), this);
    }

    public void onPartitionsAssigned(Collection<TopicPartition> given) {
        TreeSet<Integer> all = new TreeSet<>();
        for (TopicPartition partition : consumer.assignment()) all.add(partition.partition());
        for (TopicPartition partition : given) all.add(partition.partition());
        StringBuilder line = new StringBuilder("assigned");
        for (int partition : all) line.append(" ").append(partition);
        System.out.println(line);
    }

    public void onPartitionsRevoked(Collection<TopicPartition> gone) {
        untaken.keySet().removeAll(gone);
        ends.keySet().removeAll(gone);
    }

    void step() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        for (ConsumerRecord<byte[], byte[]> record : records) {
            TopicPartition partition = new TopicPartition(topic, record.partition());
            untaken.putIfAbsent(partition, record.offset());
            ends.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
        if (ends.isEmpty()) return;
        ends.forEach((partition, end) -> say("taking", partition, end));
        Object closed = closedConnections.metricValue();
        try {
            consumer.commitSync(ends);
        } catch (CommitFailedException | RebalanceInProgressException failure) {
            // A commit in flight on a connection that is closed is sent again: it may be stored the first time, and refused the second time.
            if (!closedConnections.metricValue().equals(closed)) ends.forEach((partition, end) -> say("unsure", partition, end));
            return;
        }
        ends.forEach((partition, end) -> say("took", partition, end));
        untaken.clear();
        ends.clear();
    }

    void say(String what, TopicPartition partition, OffsetAndMetadata end) {
        System.out.println(what + " " + partition.partition() + " " + untaken.get(partition) + " " + end.offset());
    }

    public static void main(String[] arguments) throws Exception {
        Member member = new Member(arguments[0], arguments[1], arguments[2], arguments[3], arguments.length > 4 ? arguments[4] : "");
        Thread working = Thread.currentThread();
        AtomicBoolean leaving = new AtomicBoolean();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            leaving.set(true);
            try {
                working.join(10_000);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        while (!leaving.get()) member.step();
        member.consumer.close();
    }
}
