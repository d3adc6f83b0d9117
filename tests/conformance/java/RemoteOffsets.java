import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** RemoteOffsets BOOTSTRAP ALIAS GROUP: where a group of a remote cluster continues, one partition a line, as a program of MirrorMaker 2's users asks. */
public class RemoteOffsets {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", arguments[0]);
        Map<TopicPartition, OffsetAndMetadata> found =
                RemoteClusterUtils.translateOffsets(properties, arguments[1], arguments[2], Duration.ofSeconds(20));
        Map<String, String> lines = new TreeMap<>();
        found.forEach((partition, offset) -> lines.put(partition.toString(), offset.offset() + " " + offset.metadata()));
        lines.forEach((partition, offset) -> System.out.println(partition + " " + offset));
        System.out.println(RemoteClusterUtils.checkpointTopics(properties));
    }
}
