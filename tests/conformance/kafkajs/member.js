// A member of a group with kafkajs: says what it is given and what it takes; see tests/support/group_members.py for the words.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, groupId] = process.argv.slice(2);
const say = (...words) => process.stdout.write(words.join(" ") + "\n");

async function main() {
  const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: 50 };
  const kafka = new Kafka({ brokers: bootstrap.split(","), clientId: "member", logLevel: logLevel.NOTHING, retry });
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, rebalanceTimeout: 10000, heartbeatInterval: 300, maxWaitTimeInMs: 50 });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say("assigned", ...(payload.memberAssignment[topic] || [])));
  consumer.on(consumer.events.CRASH, ({ payload }) => say("crashed", payload.error, payload.restart ? "and starts again" : "and ends"));
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, isRunning, isStale }) => {
      if (!isRunning() || isStale() || batch.messages.length === 0) return;
      const end = (BigInt(batch.lastOffset()) + 1n).toString();
      say("taking", batch.partition, batch.messages[0].offset, end);
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset: end }]);
      say("took", batch.partition, batch.messages[0].offset, end);
    },
  });
  process.on("SIGTERM", async () => {
    await consumer.disconnect();
    process.exit(0);
  });
}

main().catch((failure) => {
  say("failed", failure);
  process.exit(1);
});
