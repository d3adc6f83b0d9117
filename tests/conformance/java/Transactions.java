import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** A transactional producer that does what each line of standard input says, and answers with one line. */
public class Transactions {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[1]);
        settings.put("max.block.ms", "20000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        List<Future<?>> sent = new ArrayList<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            try {
                switch (words[0]) {
                    case "init": producer.initTransactions(); break;
                    case "begin": producer.beginTransaction(); break;
                    case "send": sent.add(producer.send(new ProducerRecord<>(words[1], Integer.valueOf(words[2]), null, words[3]))); break;
                    case "flush":
                        producer.flush();
                        for (Future<?> one : sent) one.get();
                        sent.clear();
                        break;
                    case "offset":
                        producer.sendOffsetsToTransaction(
                            Map.of(new TopicPartition(words[2], 0), new OffsetAndMetadata(Long.parseLong(words[3]))),
                            new ConsumerGroupMetadata(words[1]));
                        break;
                    case "commit": producer.commitTransaction(); sent.clear(); break;
                    case "abort": producer.abortTransaction(); sent.clear(); break;
                    default: throw new IllegalArgumentException(line);
                }
                System.out.println("ok");
            } catch (ExecutionException error) {
                System.out.println(error.getCause().getClass().getSimpleName());
            } catch (Exception error) {
                System.out.println(error.getClass().getSimpleName());
            }
        }
        producer.close(java.time.Duration.ZERO);
    }
}
