import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** The Java side of tests/support/group_member.py: says the same, and leaves when told. Arguments: BOOTSTRAP GROUP TOPIC [NAME=VALUE ...] */
public class Member {
    static volatile boolean leaving = false;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("heartbeat.interval.ms", "200");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (int index = 3; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            if (pair[0].equals("session_ms")) settings.put("session.timeout.ms", pair[1]);
            if (pair[0].equals("instance")) settings.put("group.instance.id", pair[1]);
        }
        Thread listener = new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException gone) {
                return;
            }
            leaving = true;
        });
        listener.setDaemon(true);
        listener.start();
        Set<Integer> assigned = Set.of();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[2]));
            while (!leaving) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                Set<Integer> now = new TreeSet<>();
                for (TopicPartition place : consumer.assignment()) now.add(place.partition());
                if (!now.equals(assigned)) {
                    StringBuilder line = new StringBuilder("assigned");
                    for (int partition : now) line.append(' ').append(partition);
                    System.out.println(line);
                    assigned = now;
                }
                for (TopicPartition place : records.partitions()) {
                    List<ConsumerRecord<String, String>> some = records.records(place);
                    try {
                        consumer.commitSync(Map.of(place, new OffsetAndMetadata(some.get(some.size() - 1).offset() + 1)));
                    } catch (KafkaException taken) {
                        continue;
                    }
                    for (ConsumerRecord<String, String> record : some)
                        System.out.println("took " + record.partition() + " " + record.offset() + " " + record.value());
                }
            }
        }
    }
}
