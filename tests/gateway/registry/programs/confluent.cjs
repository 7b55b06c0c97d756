// @confluentinc/schemaregistry: registers, evolves, serializes, deserializes, deletes.
const assert = require("node:assert");
const { AvroDeserializer, AvroSerializer, SchemaRegistryClient, SerdeType } = require("@confluentinc/schemaregistry");

async function main() {
  const client = new SchemaRegistryClient({ baseURLs: [process.argv[2]] });
  const record = (fields) => ({
    schemaType: "AVRO",
    schema: JSON.stringify({ type: "record", name: "Order", namespace: "shop", fields }),
  });
  const first = record([{ name: "id", type: "int" }]);
  const second = record([{ name: "id", type: "int" }, { name: "note", type: "string", default: "" }]);
  const subject = "confluent-value";
  const id = await client.register(subject, first, false);
  assert.strictEqual(await client.register(subject, first, false), id);
  assert.strictEqual(await client.getId(subject, first, false), id);
  assert.strictEqual(await client.testSubjectCompatibility(subject, second), true);
  assert.strictEqual(await client.testSubjectCompatibility(subject, record([{ name: "x", type: "int" }])), false);
  await client.register(subject, second, false);
  assert.deepStrictEqual(await client.getAllVersions(subject), [1, 2]);
  assert.ok((await client.getAllSubjects()).includes(subject));
  assert.strictEqual(await client.updateCompatibility(subject, "FULL"), "FULL");
  assert.strictEqual(await client.getCompatibility(subject), "FULL");
  const serializer = new AvroSerializer(client, SerdeType.VALUE, { useLatestVersion: true });
  const bytes = await serializer.serialize("confluent", { id: 7, note: "tea" });
  const deserializer = new AvroDeserializer(client, SerdeType.VALUE, {});
  assert.deepStrictEqual({ ...(await deserializer.deserialize("confluent", bytes)) }, { id: 7, note: "tea" });
  assert.deepStrictEqual(await client.deleteSubject(subject), [1, 2]);
  assert.deepStrictEqual(await client.deleteSubject(subject, true), [1, 2]);
  console.log("ok");
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
