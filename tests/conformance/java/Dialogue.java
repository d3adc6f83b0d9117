import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * The Java side of tests/support/clients.py. On standard input a line is a command, its topic and how many jobs follow, each on a line of its own;
 * the answer ends with the line "done".
 */
public class Dialogue {
    static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("fetch.max.wait.ms", "20"); // else each new assignment waits for the last one's long poll
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return settings;
    }

    static void write(Properties settings, String topic, String[] job) throws Exception {
        settings.put("compression.type", job[1]);
        settings.put("acks", job[2]);
        settings.put("enable.idempotence", String.valueOf(job[2].equals("all")));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String value : job[3].split(","))
                sent.add(producer.send(new ProducerRecord<>(topic, Integer.valueOf(job[0]), null, value)));
            producer.flush();
            for (Future<RecordMetadata> one : sent) one.get();
        }
    }

    static void read(KafkaConsumer<String, String> consumer, String topic, int number, String[] job) {
        TopicPartition partition = new TopicPartition(topic, Integer.parseInt(job[0]));
        int left = Integer.parseInt(job[1]);
        long offset = Long.parseLong(job[2]), timestamp = Long.parseLong(job[3]);
        consumer.assign(List.of(partition));
        if (timestamp >= 0) offset = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition).offset();
        consumer.seek(partition, offset);
        long until = System.nanoTime() + 20_000_000_000L;
        while (left > 0 && System.nanoTime() < until)
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)))
                if (left-- > 0) System.out.println(number + " " + record.offset() + " " + record.timestamp() + " " + record.value());
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] command = line.split(" ");
            String topic = command[1];
            List<String[]> jobs = new ArrayList<>();
            for (int left = Integer.parseInt(command[2]); left > 0; left--) jobs.add(input.readLine().split(" ", 4));
            switch (command[0]) {
                case "create":
                    try (Admin admin = Admin.create(settings(bootstrap))) {
                        admin.createTopics(List.of(new NewTopic(topic, Optional.of(Integer.valueOf(jobs.get(0)[0])), Optional.empty()))).all().get();
                    }
                    break;
                case "write":
                    for (String[] job : jobs) write(settings(bootstrap), topic, job);
                    break;
                default:
                    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings(bootstrap))) {
                        for (int number = 0; number < jobs.size(); number++) read(consumer, topic, number, jobs.get(number));
                    }
            }
            System.out.println("done");
        }
    }
}
