import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Reads partition 0 of a topic from its beginning to its end; a line for each record. Arguments: BOOTSTRAP TOPIC ISOLATION... */
public class Compacted {
    static void read(String bootstrap, String topic, String isolation) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("max.partition.fetch.bytes", "500");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)))
                    System.out.println(record.offset() + " " + record.timestamp() + " " + record.key() + " " + record.value());
            System.out.println("end " + consumer.position(place));
        }
    }

    public static void main(String[] arguments) {
        for (int number = 2; number < arguments.length; number++) read(arguments[0], arguments[1], arguments[number]);
    }
}
