import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Produces 0, 1, 2, ... to the partitions of a topic in turn, idempotent and with acks=all, until SIGTERM. The last line is "acknowledged N";
 * a send that fails ends it with "failed" and the reason.
 */
public class Numbers {
    static final int FAILED = 4;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<byte[], String> producer = new KafkaProducer<>(settings);
        AtomicLong acknowledged = new AtomicLong();
        AtomicBoolean leaving = new AtomicBoolean();
        Thread working = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            leaving.set(true);
            try {
                working.join();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        for (int number = 0; !leaving.get(); number++) {
            producer.send(new ProducerRecord<>(topic, number % partitions, null, String.valueOf(number)), (place, failure) -> {
                if (failure == null) {
                    acknowledged.incrementAndGet();
                    return;
                }
                System.out.println("failed " + failure);
                Runtime.getRuntime().halt(FAILED);
            });
            Thread.sleep(2); // a pace that the copier keeps, not a wait
        }
        producer.close();
        System.out.println("acknowledged " + acknowledged.get());
    }
}
