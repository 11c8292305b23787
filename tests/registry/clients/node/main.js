// Registers, reads and compares schemas with one of the registry clients of Node.js, and prints what came of it.
// usage: main.js confluent|kafkajs URL HEX…    (values that another client wrote, to be decoded)
const [, , client, url, ...given] = process.argv

const ORDER = { type: 'record', name: 'Order', namespace: 'shop', fields: [{ name: 'id', type: 'int' }] }
const RENAMED = { ...ORDER, fields: [{ name: 'number', type: 'int' }] }
const JSON_ORDER = { type: 'object', properties: { id: { type: 'integer' } }, additionalProperties: false }
const PROTO = 'syntax = "proto3";\npackage shop;\nmessage Order { int32 id = 1; }\n'

async function confluent() {
  const sr = require('@confluentinc/schemaregistry')
  const registry = new sr.SchemaRegistryClient({ baseURLs: [url], maxRetries: 0 })
  const report = { values: [] }
  report.id = await registry.register('node-avro-value', { schemaType: 'AVRO', schema: JSON.stringify(ORDER) })
  const status = async (work) => work.then(() => null, (error) => [error.status, error.errorCode])
  report.incompatible = await status(
    registry.register('node-avro-value', { schemaType: 'AVRO', schema: JSON.stringify(RENAMED) }),
  )
  report.missing = await status(registry.getLatestSchemaMetadata('nothing'))
  report.compatible = await registry.testCompatibility('node-avro-value', -1, {
    schemaType: 'AVRO', schema: JSON.stringify(RENAMED),
  })
  report.versions = await registry.getAllVersions('node-avro-value')
  await registry.updateCompatibility('node-avro-value', 'FULL')
  report.config = await registry.getCompatibility('node-avro-value')

  const avro = new sr.AvroSerializer(registry, sr.SerdeType.VALUE, { autoRegisterSchemas: false, useLatestVersion: true })
  report.values.push((await avro.serialize('node-avro', { id: 7 })).toString('hex'))
  await registry.register('node-json-value', { schemaType: 'JSON', schema: JSON.stringify(JSON_ORDER) })
  const json = new sr.JsonSerializer(registry, sr.SerdeType.VALUE, { autoRegisterSchemas: false, useLatestVersion: true })
  report.values.push((await json.serialize('node-json', { id: 8 })).toString('hex'))

  const readAvro = new sr.AvroDeserializer(registry, sr.SerdeType.VALUE, {})
  const readJson = new sr.JsonDeserializer(registry, sr.SerdeType.VALUE, {})
  report.read = [
    await readAvro.deserialize('t', Buffer.from(given[0], 'hex')),
    await readJson.deserialize('t', Buffer.from(given[1], 'hex')),
  ]
  report.deleted = await registry.deleteSubject('node-json-value')
  return report
}

async function kafkajs() {
  const { SchemaRegistry, SchemaType } = require('@kafkajs/confluent-schema-registry')
  const registry = new SchemaRegistry({ host: url, retry: { retries: 0 } })
  const report = { values: [] }
  const avro = await registry.register(
    { type: SchemaType.AVRO, schema: JSON.stringify(ORDER) }, { subject: 'kafkajs-avro-value' },
  )
  report.id = avro.id
  const refused = (work) => work.then(() => null, (error) => error.message)
  report.incompatible = await refused(
    registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(RENAMED) }, { subject: 'kafkajs-avro-value' }),
  )
  report.missing = await refused(registry.getLatestSchemaId('nothing'))
  report.latest = await registry.getLatestSchemaId('kafkajs-avro-value')
  const json = await registry.register(
    { type: SchemaType.JSON, schema: JSON.stringify(JSON_ORDER) }, { subject: 'kafkajs-json-value' },
  )
  const proto = await registry.register({ type: SchemaType.PROTOBUF, schema: PROTO }, { subject: 'kafkajs-proto-value' })
  report.values.push((await registry.encode(avro.id, { id: 7 })).toString('hex'))
  report.values.push((await registry.encode(json.id, { id: 8 })).toString('hex'))
  report.values.push((await registry.encode(proto.id, { id: 9 })).toString('hex'))
  report.read = []
  for (const hex of given) report.read.push(await registry.decode(Buffer.from(hex, 'hex')))
  return report
}

;(client === 'confluent' ? confluent() : kafkajs()).then(
  (report) => console.log(JSON.stringify(report)),
  (error) => { console.error(error); process.exit(1) },
)
