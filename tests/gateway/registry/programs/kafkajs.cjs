// @kafkajs/confluent-schema-registry: registers, evolves, encodes, decodes.
const assert = require("node:assert");
const { SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");

async function main() {
  const registry = new SchemaRegistry({ host: process.argv[2] });
  const record = (fields) => JSON.stringify({ type: "record", name: "Order", namespace: "shop", fields });
  const first = [{ name: "id", type: "long" }];
  const second = [...first, { name: "note", type: "string", default: "" }];
  const subject = "kafkajs-value";
  const { id } = await registry.register({ type: SchemaType.AVRO, schema: record(first) }, { subject });
  const again = await registry.register({ type: SchemaType.AVRO, schema: record(first) }, { subject });
  assert.strictEqual(again.id, id);
  const evolved = await registry.register({ type: SchemaType.AVRO, schema: record(second) }, { subject });
  assert.notStrictEqual(evolved.id, id);
  assert.strictEqual(await registry.getLatestSchemaId(subject), evolved.id);
  assert.strictEqual(await registry.getRegistryId(subject, 1), id);
  const encoded = await registry.encode(evolved.id, { id: 7, note: "tea" });
  assert.deepStrictEqual({ ...(await registry.decode(encoded)) }, { id: 7, note: "tea" });
  const broken = [...first, { name: "price", type: "int" }];
  await assert.rejects(
    registry.register({ type: SchemaType.AVRO, schema: record(broken) }, { subject }),
    /incompatible/,
  );
  console.log("ok");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
