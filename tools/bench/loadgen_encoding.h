/* Kafka's encoding, as far as a load generator needs it: integers, varints, CRC-32C, record batches. */
#ifndef LOADGEN_ENCODING_H
#define LOADGEN_ENCODING_H

#include <stdint.h>
#include <string.h>
#include <time.h>

enum {
    BATCH_OVERHEAD = 61,
    RECORD_OVERHEAD = 40, /* more than the varints around a value take */
};

static void put_int(uint8_t **at, int64_t value, int bytes) {
    for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) *(*at)++ = (uint8_t)((uint64_t)value >> shift);
}

static void put_varint(uint8_t **at, uint64_t value) {
    for (; value >= 128; value >>= 7) *(*at)++ = (uint8_t)(value | 128);
    *(*at)++ = (uint8_t)value;
}

static void put_zigzag(uint8_t **at, int64_t value) {
    put_varint(at, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static void put_bytes(uint8_t **at, const void *bytes, size_t length) {
    memcpy(*at, bytes, length);
    *at += length;
}

static void put_compact_string(uint8_t **at, const char *text) {
    put_varint(at, strlen(text) + 1);
    put_bytes(at, text, strlen(text));
}

static int64_t get_int(const uint8_t **at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | *(*at)++;
    int unused = 64 - bytes * 8;
    return (int64_t)(value << unused) >> unused;
}

static uint64_t get_varint(const uint8_t **at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128 || shift > 56) return value;
    }
}

static int64_t get_zigzag(const uint8_t **at) {
    uint64_t value = get_varint(at);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static uint32_t crc32c(const uint8_t *bytes, size_t length) {
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t remainder = i;
            for (int bit = 0; bit < 8; bit++) remainder = remainder >> 1 ^ (remainder & 1 ? 0x82F63B78u : 0);
            table[i] = remainder;
        }
    uint32_t crc = ~0u;
    while (length--) crc = table[(crc ^ *bytes++) & 255] ^ crc >> 8;
    return ~crc;
}

/* A record batch: begin_batch, put_record for each record, end_batch. */

static uint8_t *begin_batch(uint8_t **at) {
    uint8_t *batch = *at;
    memset(batch, 0, BATCH_OVERHEAD);
    *at += BATCH_OVERHEAD;
    return batch;
}

static void put_record(uint8_t **at, int64_t index, const uint8_t *value, size_t length) {
    uint8_t head[RECORD_OVERHEAD], *end = head;
    put_int(&end, 0, 1);
    put_zigzag(&end, 0);
    put_zigzag(&end, index);
    put_zigzag(&end, -1);
    put_zigzag(&end, (int64_t)length);
    put_zigzag(at, end - head + (int64_t)length + 1);
    put_bytes(at, head, (size_t)(end - head));
    put_bytes(at, value, length);
    put_zigzag(at, 0);
}

static void end_batch(uint8_t *batch, const uint8_t *end, int64_t count) {
    int64_t timestamp_ms = (int64_t)time(NULL) * 1000;
    uint8_t *at = batch;
    put_int(&at, 0, 8);
    put_int(&at, end - batch - 12, 4);
    put_int(&at, -1, 4);
    put_int(&at, 2, 1);
    uint8_t *crc = at, *body = at + 4;
    at = body;
    put_int(&at, 0, 2);
    put_int(&at, count - 1, 4);
    put_int(&at, timestamp_ms, 8);
    put_int(&at, timestamp_ms, 8);
    put_int(&at, -1, 8);
    put_int(&at, -1, 2);
    put_int(&at, -1, 4);
    put_int(&at, count, 4);
    put_int(&crc, crc32c(body, (size_t)(end - body)), 4);
}

#endif
