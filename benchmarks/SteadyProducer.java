import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Sends 200 bytes to a partition every two milliseconds, idempotent, acks all, until the end of standard input. Each line there is answered by
 * what came since the line before: the longest time between two acknowledgements in microseconds, how many there were, how many sends failed.
 */
public class SteadyProducer {
    private static final long INTERVAL_NANOS = 2_000_000;
    private static long last, longest, acknowledged, failed;
    private static volatile boolean ends;

    private static synchronized void ended(Exception error) {
        if (error != null) {
            failed++;
            return;
        }
        long now = System.nanoTime();
        if (last != 0) longest = Math.max(longest, now - last);
        last = now;
        acknowledged++;
    }

    private static synchronized String report() {
        String report = longest / 1000 + " " + acknowledged + " " + failed;
        longest = acknowledged = failed = 0;
        return report;
    }

    public static void main(String[] arguments) throws Exception {
        int partition = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("linger.ms", "0");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            Thread sender = new Thread(() -> {
                byte[] value = new byte[200];
                for (long due = System.nanoTime(); !ends; due += INTERVAL_NANOS) {
                    while (System.nanoTime() < due) LockSupport.parkNanos(due - System.nanoTime());
                    producer.send(new ProducerRecord<>(arguments[1], partition, null, value), (metadata, error) -> ended(error));
                }
            });
            sender.start();
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            while (lines.readLine() != null) System.out.println(report());
            ends = true;
            sender.join();
        }
    }
}
