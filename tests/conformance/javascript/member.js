// The kafkajs side of tests/support/group_member.py: says the same, and leaves when told. Arguments: BOOTSTRAP GROUP TOPIC [NAME=VALUE ...]
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, groupId, topic, ...pairs] = process.argv.slice(2)
const settings = Object.fromEntries(pairs.map(pair => pair.split('=')))
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
const consumer = kafka.consumer({
  groupId,
  sessionTimeout: Number(settings.session_ms),
  heartbeatInterval: 200,
  rebalanceTimeout: 10000,
  maxWaitTimeInMs: 100,
})

let said = ''
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  const line = ['assigned', ...(payload.memberAssignment[topic] || []).sort((a, b) => a - b)].join(' ')
  if (line !== said) console.log(line)
  said = line
})
process.stdin.once('data', async () => {
  await consumer.disconnect()
  process.exit(0)
})
consumer.connect()
  .then(() => consumer.subscribe({ topics: [topic], fromBeginning: true }))
  .then(() => consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
      console.log('took', partition, message.offset, message.value.toString())
    },
  }))
