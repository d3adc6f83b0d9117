import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Has Java load the classes that most tests with Kafka's libraries need, so that it writes an archive of them at its end: those of a server,
 * whose properties file is the first argument and whose address the second, and of clients. It is run from its source, as tests run others.
 */
public class Exercise {
    public static void main(String[] arguments) throws Exception {
        Thread server = new Thread(() -> call("kafka.Kafka", arguments[0]));
        server.setDaemon(true);
        server.start();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("transactional.id", "exercise");
        settings.put("group.id", "exercise");
        settings.put("compression.type", "lz4");
        settings.put("auto.offset.reset", "earliest");
        for (String each : List.of("key", "value")) {
            settings.put(each + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(each + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic("exercise", Optional.of(1), Optional.empty()))).all().get();
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
                KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("exercise", 0, "key", "value")).get();
            producer.commitTransaction();
            consumer.subscribe(List.of("exercise"));
            while (consumer.poll(Duration.ofMillis(100)).isEmpty()) {}
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(new TopicPartition("exercise", 0), new OffsetAndMetadata(1)), consumer.groupMetadata());
            producer.commitTransaction();
        }
        System.exit(0);
    }

    static void call(String name, String argument) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) new String[] {argument});
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }
}
