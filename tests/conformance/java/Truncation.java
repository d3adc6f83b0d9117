import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.common.TopicPartition;

/** Reads a number of records of one partition, waits for a line on standard input, polls again, and says whether it saw the log cut. */
public class Truncation {
    public static void main(String[] arguments) throws Exception {
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        int left = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            while (left > 0) left -= consumer.poll(Duration.ofMillis(200)).count();
            System.out.println("position " + consumer.position(partition));
            new BufferedReader(new InputStreamReader(System.in)).readLine();
            long until = System.nanoTime() + 30_000_000_000L;
            while (System.nanoTime() < until)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println("record " + record.offset() + " " + record.value());
                    return;
                }
            System.out.println("nothing");
        } catch (LogTruncationException cut) {
            System.out.println("truncated at " + cut.divergentOffsets().get(partition).offset());
        }
    }
}
