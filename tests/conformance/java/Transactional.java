import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/**
 * Transactional producers that do what they are told: a command per line of standard input, the word, a producer's name, arguments.
 * Answers: "delivered VALUE OFFSET" or "undelivered VALUE" for each send that has ended (at the end of its transaction at last), then one line:
 * "ok", or "again", "abort" or "fatal" with the reason. See tests/support/workload/java_producer.py.
 */
public class Transactional {
    final String bootstrap;
    final Map<String, KafkaProducer<byte[], String>> producers = new HashMap<>();
    final Map<String, List<Map.Entry<String, Future<RecordMetadata>>>> sent = new HashMap<>();

    Transactional(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    KafkaProducer<byte[], String> open(String transactionalId, String timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("max.block.ms", "10000");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(settings);
    }

    void run(String[] words) {
        String name = words[1];
        KafkaProducer<byte[], String> producer = producers.get(name);
        switch (words[0]) {
            case "open" -> {
                producers.put(name, open(words[2], words[3]));
                sent.put(name, new ArrayList<>());
            }
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> sent.get(name).add(Map.entry(
                words[4], producer.send(new ProducerRecord<>(words[2], Integer.valueOf(words[3]), null, words[4]))));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> {
                producers.remove(name);
                producer.close(Duration.ZERO);
            }
        }
    }

    void report(String name) throws InterruptedException {
        List<Map.Entry<String, Future<RecordMetadata>>> waiting = sent.get(name);
        for (Map.Entry<String, Future<RecordMetadata>> send : waiting)
            if (send.getValue().isDone())
                try {
                    System.out.println("delivered " + send.getKey() + " " + send.getValue().get().offset());
                } catch (ExecutionException failure) {
                    System.out.println("undelivered " + send.getKey());
                }
        waiting.removeIf(send -> send.getValue().isDone());
    }

    public static void main(String[] arguments) throws Exception {
        Transactional transactional = new Transactional(arguments[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            String answer = "ok";
            try {
                transactional.run(words);
            } catch (TimeoutException failure) {
                answer = "again " + failure;
            } catch (ProducerFencedException | AuthorizationException | UnsupportedVersionException | IllegalStateException failure) {
                answer = "fatal " + failure;
            } catch (KafkaException failure) { // one that cannot even be aborted is at its end
                answer = (words[0].equals("abort") ? "fatal " : "abort ") + failure;
            }
            transactional.report(words[1]);
            System.out.println(answer.replace('\n', ' '));
        }
        Runtime.getRuntime().halt(0);
    }
}
