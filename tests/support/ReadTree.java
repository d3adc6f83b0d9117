import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import kafka.cluster.Broker;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.zk.KafkaZkClient;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.zookeeper.client.ZKClientConfig;
import scala.jdk.javaapi.CollectionConverters;

/** Prints what the ZooKeeper client of Apache Kafka 3.9 reads in a tree: arguments are the connect string and a topic. */
class ReadTree {
    public static void main(String[] arguments) throws Exception {
        KafkaZkClient client = KafkaZkClient.apply(
                arguments[0], false, 10000, 10000, 10, Time.SYSTEM, "reader", new ZKClientConfig(), "kafka.server", "Reader", false, false);
        String topic = arguments[1];
        System.out.println("cluster " + client.getClusterId().get());
        System.out.println("controller " + client.getControllerId().get() + " epoch " + client.getControllerEpoch().get()._1());
        for (Broker broker : CollectionConverters.asJava(client.getAllBrokersInCluster())) {
            System.out.println("broker " + broker.id() + " " + broker.endPoints().head().host() + ":" + broker.endPoints().head().port()
                    + " rack " + broker.rack());
        }
        System.out.println("topics " + new TreeSet<>(CollectionConverters.asJava(client.getAllTopicsInCluster(false))));
        scala.collection.immutable.Set<String> names = client.getAllTopicsInCluster(false);
        System.out.println("id " + client.getTopicIdsForTopics(names).apply(topic));
        var assigned = CollectionConverters.asJava(client.getFullReplicaAssignmentForTopics(names));
        for (int partition = 0; assigned.containsKey(new TopicPartition(topic, partition)); partition++) {
            TopicPartition each = new TopicPartition(topic, partition);
            ReplicaAssignment replicas = assigned.get(each);
            LeaderIsrAndControllerEpoch state = client.getTopicPartitionState(each).get();
            System.out.println("partition " + each + " replicas " + CollectionConverters.asJava(replicas.replicas()) + " leader "
                    + state.leaderAndIsr().leader() + " epoch " + state.leaderAndIsr().leaderEpoch() + " isr " + state.leaderAndIsr().isr()
                    + " controller epoch " + state.controllerEpoch());
        }
        Properties config = client.getEntityConfigs("topics", topic);
        System.out.println("config " + config);
        System.out.println("defaults " + client.getEntityConfigs("brokers", "<default>"));
        System.out.println("deleted " + CollectionConverters.asJava(client.getTopicDeletions()));
        System.out.println("reassigned " + CollectionConverters.asJava(client.getPartitionReassignment()));
        client.close();
    }
}
