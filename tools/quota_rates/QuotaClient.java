import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A client that uses all it gets, until it is killed, and prints how much that was so far. The same as clients.py. */
public class QuotaClient {
    private static final AtomicLong used = new AtomicLong();

    interface Use {
        void run() throws Exception;
    }

    public static void main(String[] values) throws Exception {
        String kind = values[0], topic = values[2];
        int size = Integer.parseInt(values[3]), threads = Integer.parseInt(values[4]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", values[1]);
        settings.put("client.id", kind + "-java");
        Use use =
                switch (kind) {
                    case "produce" -> () -> produce(settings, topic, size, size * 2);
                    case "time" -> () -> produce(settings, topic, size, 0);
                    case "fetch" -> () -> fetch(settings, topic, size);
                    case "mutate" -> () -> mutate(settings, size);
                    case "connect" -> () -> connect(settings);
                    default -> throw new IllegalArgumentException(kind);
                };
        for (int i = 0; i < threads; i++)
            new Thread(
                            () -> {
                                try {
                                    use.run();
                                } catch (Exception failure) {
                                    failure.printStackTrace();
                                    Runtime.getRuntime().halt(1);
                                }
                            })
                    .start();
        while (true) {
            Thread.sleep(200);
            System.out.println(System.nanoTime() / 1e9 + " " + used);
        }
    }

    private static void produce(Properties settings, String topic, int size, int batch) {
        settings.put("batch.size", batch);
        settings.put("buffer.memory", 1_000_000);
        settings.put("max.block.ms", 600_000);
        settings.put("acks", "1");
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        byte[] value = new byte[size];
        while (true)
            producer.send(
                    new ProducerRecord<>(topic, 0, null, value),
                    (stored, failure) -> {
                        if (failure == null) used.addAndGet(size);
                    });
    }

    private static void fetch(Properties settings, String topic, int size) {
        settings.put("max.partition.fetch.bytes", size);
        settings.put("enable.auto.commit", "false");
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var partition = new TopicPartition(topic, 0);
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        while (true) {
            for (var record : consumer.poll(Duration.ofMillis(100))) used.addAndGet(record.serializedValueSize());
            if (consumer.position(partition) >= end) consumer.seekToBeginning(List.of(partition));
        }
    }

    private static void mutate(Properties settings, int partitions) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            while (true) {
                // It repeats a topic that was refused, after the throttle time.
                var topic = new NewTopic("java-" + UUID.randomUUID(), Optional.of(partitions), Optional.empty());
                admin.createTopics(List.of(topic)).all().get();
                used.addAndGet(partitions);
            }
        }
    }

    private static void connect(Properties settings) {
        settings.put("reconnect.backoff.max.ms", 100);
        // Metrics (KIP-714) would be pushed on another connection, which is not counted here.
        settings.put("enable.metrics.push", "false");
        while (true)
            try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                // One request on a connection of its own; connections that are closed are opened again.
                consumer.listTopics(Duration.ofSeconds(60));
                used.incrementAndGet();
            } catch (KafkaException failure) {
                System.err.println(failure);
            }
    }
}
