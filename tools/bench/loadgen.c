/* Load generator for brokers that speak Kafka's protocol: one thread, epoll, requests encoded in advance.
 *
 *   loadgen produce|fetch|latency|connect|http key=value ...
 *
 * produce, fetch: a closed loop. Each connection keeps `in_flight` requests under way for `seconds`. In a cluster,
 *   `leaders` lists the port of each partition's leader; connections are spread over them, and each one produces
 *   to its share of the partitions in turn.
 * latency: an open loop. Record i is due at start + i / rate, whatever happened to the records before it, and its
 *   latencies count from that moment: to the acknowledgement, and to its arrival at a consumer. Records that are
 *   due go out in one batch per partition, at most `in_flight` batches at once, as a producer with linger.ms=0
 *   sends them. What is due in the first `discard` seconds is not recorded.
 *
 * connect: opens connections, authenticates and closes them, in `processes` of one connection at a time.
 *
 * http: a closed loop over HTTP/1.1. Each connection has one request under way and stays open; it sends the requests
 *   of the file `requests` in turn. Statuses other than 200 are errors; responses without `body_min` bytes count as
 *   empty.
 *
 * With `tls`, the path of OpenSSL's libssl, connections use TLS; with `mechanism` (PLAIN, SCRAM-SHA-512), `user` and
 * `password` they authenticate first.
 *
 * Prints one line of JSON. Latencies are written as native 64-bit integers, in nanoseconds, to the files named by
 * `latencies` and, for arrivals at consumers, `arrivals`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loadgen_encoding.h"
#include "loadgen_http.h"
#include "loadgen_tls.h"

enum {
    PRODUCE_VERSION = 9,
    FETCH_VERSION = 12,
    BATCH_BYTES_MAX = 16384,   /* of the open loop, as batch.size of Kafka's producer */
    RECEIVE_BYTES = 1 << 20,
    TLS_RECORD_BYTES = 16384,
    HEAD_BYTES = 512,          /* of a response, as far as a closed loop reads it */
    RESPONSE_BYTES_MAX = 4 << 20,
    FETCH_WAIT_MS = 500,
    DRAIN_S = 30,
    MAX_NODES = 16,
};

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (memory == NULL) fail("out of memory");
    return memory;
}

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Options */

static int argument_count;
static char **argument_values;

static const char *text_option(const char *key, const char *otherwise) {
    size_t length = strlen(key);
    for (int i = 2; i < argument_count; i++)
        if (!strncmp(argument_values[i], key, length) && argument_values[i][length] == '=')
            return argument_values[i] + length + 1;
    if (otherwise == NULL) fail("loadgen: %s=... is missing", key);
    return otherwise;
}

static int64_t int_option(const char *key, const char *otherwise) {
    return atoll(text_option(key, otherwise));
}

static double real_option(const char *key, const char *otherwise) {
    return atof(text_option(key, otherwise));
}

/* Samples of latency */

struct samples {
    int64_t *values;
    size_t count, capacity;
};

static void add_sample(struct samples *samples, int64_t value) {
    if (samples->count == samples->capacity) {
        samples->capacity = samples->capacity ? samples->capacity * 2 : 1 << 16;
        samples->values = realloc(samples->values, samples->capacity * sizeof *samples->values);
        if (samples->values == NULL) fail("out of memory");
    }
    samples->values[samples->count++] = value;
}

static void write_samples(const struct samples *samples, const char *path) {
    if (!*path) return;
    FILE *file = fopen(path, "wb");
    if (file == NULL) fail("%s: %s", path, strerror(errno));
    if (fwrite(samples->values, sizeof(int64_t), samples->count, file) != samples->count || fclose(file))
        fail("%s: %s", path, strerror(errno));
}

/* Requests: begin_request and end_request around the body. */

static const char *topic;

static uint8_t *begin_request(uint8_t **at, int api, int version) {
    uint8_t *request = *at;
    put_int(at, 0, 4);
    put_int(at, api, 2);
    put_int(at, version, 2);
    put_int(at, 1, 4);
    put_int(at, 7, 2);
    put_bytes(at, "loadgen", 7);
    put_int(at, 0, 1);
    return request;
}

static void end_request(uint8_t *request, const uint8_t *end) {
    put_int(&request, end - request - 4, 4);
}

/* Everything of a Produce request but its batch, which follows; three empty tag sections end it. */
static uint8_t *begin_produce(uint8_t **at, int partition, int acks, size_t batch_bytes) {
    uint8_t *request = begin_request(at, 0, PRODUCE_VERSION);
    put_int(at, 0, 1);
    put_int(at, acks, 2);
    put_int(at, 30000, 4);
    put_varint(at, 2);
    put_compact_string(at, topic);
    put_varint(at, 2);
    put_int(at, partition, 4);
    put_varint(at, batch_bytes + 1);
    return request;
}

static void end_produce(uint8_t *request, uint8_t **at) {
    put_int(at, 0, 3);
    end_request(request, *at);
}

/* A Fetch request; returns where its offset is, to be patched. */
static size_t put_fetch(uint8_t **at, int partition, int64_t offset, int64_t bytes_max) {
    uint8_t *request = begin_request(at, 1, FETCH_VERSION);
    put_int(at, -1, 4);
    put_int(at, FETCH_WAIT_MS, 4);
    put_int(at, 1, 4);
    put_int(at, INT32_MAX, 4);
    put_int(at, 0, 1);
    put_int(at, 0, 4);
    put_int(at, -1, 4);
    put_varint(at, 2);
    put_compact_string(at, topic);
    put_varint(at, 2);
    put_int(at, partition, 4);
    put_int(at, -1, 4);
    size_t offset_at = (size_t)(*at - request);
    put_int(at, offset, 8);
    put_int(at, -1, 4);
    put_int(at, -1, 8);
    put_int(at, bytes_max, 4);
    put_int(at, 0, 2);
    put_varint(at, 1);
    put_varint(at, 1);
    put_int(at, 0, 1);
    end_request(request, *at);
    return offset_at;
}

/* Past the name of the only topic, to the partition's error code. */
static const uint8_t *partition_error(const uint8_t *response, int is_fetch) {
    const uint8_t *at = response + 4 + 1 + (is_fetch ? 4 + 2 + 4 : 0);
    get_varint(&at);
    at += get_varint(&at) - 1;
    get_varint(&at);
    return at + 4;
}

/* Connections */

struct connection {
    int socket, partition, is_fetch, wants_write;
    void *tls;
    /* The partitions of a closed loop. */
    int *share, share_count;
    /* What is to be sent: up to `slots` requests of equal length in a ring, or (open loop) one buffer of bytes. */
    uint8_t *requests;
    size_t request_bytes, offset_at;
    int slots, first_slot, unsent;
    size_t sent_bytes, buffered_bytes, buffer_capacity;
    /* Send times of a closed loop, or numbers of records of an open one, oldest first. */
    int64_t *under_way, *counts;
    int first_under_way, under_way_count;
    int64_t fetch_offset, next_record, acked_record;
    /* The response that is being received; only its first `capacity` bytes are kept. */
    uint8_t *response, prefix[4];
    size_t capacity, prefix_bytes, expected, received;
};

static int poller;
static uint8_t *receive_buffer;
static uint64_t responses, bytes, errors, empty;

/* A connected socket that blocks, with TLS and authenticated if the options say so. */
static int connect_to(int port, void **tls) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int connected = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (connect(connected, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
    setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    *tls = start_tls(connected);
    const char *mechanism = text_option("mechanism", "");
    if (*mechanism) authenticate(connected, *tls, mechanism, text_option("user", NULL), text_option("password", NULL));
    return connected;
}

static void open_connection(struct connection *connection, int port, size_t capacity) {
    connection->socket = connect_to(port, &connection->tls);
    fcntl(connection->socket, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(poller, EPOLL_CTL_ADD, connection->socket, &event);
    connection->capacity = capacity;
    connection->response = allocate(capacity);
}

static void want_write(struct connection *connection, int wants) {
    if (connection->wants_write == wants) return;
    connection->wants_write = wants;
    struct epoll_event event = {.events = EPOLLIN | (wants ? EPOLLOUT : 0), .data.ptr = connection};
    epoll_ctl(poller, EPOLL_CTL_MOD, connection->socket, &event);
}

/* Bytes taken by the kernel; 0 if it takes no more now. */
static size_t send_some(struct connection *connection, struct iovec *parts, int count) {
    if (connection->tls) {
        /* A record at most, of the first part: callers repeat it for the rest. */
        int taken = openssl.SSL_write(connection->tls, parts->iov_base, (int)parts->iov_len);
        if (taken <= 0 && openssl.SSL_get_error(connection->tls, taken) != TLS_WANT_WRITE) fail("SSL_write");
        want_write(connection, taken <= 0);
        return taken <= 0 ? 0 : (size_t)taken;
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t sent = sendmsg(connection->socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) fail("send: %s", strerror(errno));
    want_write(connection, sent < 0);
    return sent < 0 ? 0 : (size_t)sent;
}

/* Receive what is there, up to a buffer; 0 if there is nothing. */
static size_t receive_some(struct connection *connection) {
    if (connection->tls == NULL) {
        ssize_t count = recv(connection->socket, receive_buffer, RECEIVE_BYTES, 0);
        if (count == 0 || (count < 0 && errno != EAGAIN)) fail("the broker closed a connection");
        return count < 0 ? 0 : (size_t)count;
    }
    size_t end = 0;
    while (RECEIVE_BYTES - end >= TLS_RECORD_BYTES) {
        int count = openssl.SSL_read(connection->tls, receive_buffer + end, (int)(RECEIVE_BYTES - end));
        if (count <= 0 && openssl.SSL_get_error(connection->tls, count) == TLS_WANT_READ) break;
        if (count <= 0) fail("the broker closed a connection");
        end += (size_t)count;
    }
    return end;
}

/* Call `on_response` for each complete response. */
static void receive(struct connection *connection, void (*on_response)(struct connection *, int64_t)) {
    size_t end = receive_some(connection);
    int64_t at_ns = now_ns();
    for (size_t at = 0; at < end;) {
        if (connection->prefix_bytes < 4) {
            connection->prefix[connection->prefix_bytes++] = receive_buffer[at++];
            if (connection->prefix_bytes == 4) {
                const uint8_t *prefix = connection->prefix;
                connection->expected = (size_t)get_int(&prefix, 4);
                connection->received = 0;
            }
            continue;
        }
        size_t taken = connection->expected - connection->received;
        if (taken > end - at) taken = end - at;
        if (connection->received < connection->capacity) {
            size_t kept = connection->capacity - connection->received;
            memcpy(connection->response + connection->received, receive_buffer + at, kept < taken ? kept : taken);
        }
        connection->received += taken;
        at += taken;
        if (connection->received == connection->expected) {
            connection->prefix_bytes = 0;
            responses++;
            const uint8_t *error = partition_error(connection->response, connection->is_fetch);
            int code = (int)get_int(&error, 2);
            if (code && errors++ < 3) fprintf(stderr, "error code %d\n", code);
            on_response(connection, at_ns);
        }
    }
    /* What TLS has taken in is not seen by the poller. */
    if (connection->tls && RECEIVE_BYTES - end < TLS_RECORD_BYTES) receive(connection, on_response);
}

static void push_under_way(struct connection *connection, int64_t value, int64_t count) {
    int slot = (connection->first_under_way + connection->under_way_count++) % connection->slots;
    connection->under_way[slot] = value;
    connection->counts[slot] = count;
}

static int pop_under_way(struct connection *connection) {
    int slot = connection->first_under_way;
    connection->first_under_way = (slot + 1) % connection->slots;
    connection->under_way_count--;
    return slot;
}

static void prepare(struct connection *connection, int slots, size_t buffer_bytes) {
    connection->slots = slots;
    connection->under_way = allocate((size_t)slots * sizeof(int64_t));
    connection->counts = allocate((size_t)slots * sizeof(int64_t));
    connection->requests = allocate(buffer_bytes);
    connection->buffer_capacity = buffer_bytes;
}

/* The closed loop */

/* The port of each partition's leader. */
static int *leader_ports(int64_t partitions) {
    int *ports = allocate((size_t)partitions * sizeof *ports), port = (int)int_option("port", NULL);
    const char *text = text_option("leaders", "");
    for (int64_t i = 0; i < partitions; i++) {
        ports[i] = *text ? (int)strtol(text, (char **)&text, 10) : port;
        if (*text == ',') text++;
    }
    return ports;
}

/* The partitions whose requests a connection sends in turn: those of its leader, divided among its connections. */
static int share_of(int number, int connections, const int *ports, int64_t partitions, int *share) {
    int distinct[MAX_NODES], nodes = 0;
    for (int64_t i = 0; i < partitions; i++) {
        int known = 0;
        while (known < nodes && distinct[known] != ports[i]) known++;
        if (known < nodes) continue;
        if (nodes == MAX_NODES) fail("more than %d leaders", MAX_NODES);
        distinct[nodes++] = ports[i];
    }
    int rank = number / nodes, of_leader = (connections - number % nodes + nodes - 1) / nodes, led = 0, count = 0;
    for (int64_t i = 0; i < partitions; i++)
        if (ports[i] == distinct[number % nodes]) led++;
    for (int64_t i = 0, seen = 0; i < partitions; i++) {
        if (ports[i] != distinct[number % nodes]) continue;
        /* With fewer partitions than connections, several of them share one. */
        if (seen % of_leader == rank || (led < of_leader && seen == rank % led)) share[count++] = (int)i;
        seen++;
    }
    return count;
}

static struct samples latencies, arrivals;
static int64_t end_ns, offset_end, offset_step;

static void queue_request(struct connection *connection) {
    int slot = (connection->first_slot + connection->unsent++) % connection->slots;
    if (connection->is_fetch) {
        uint8_t *at = connection->requests + (size_t)slot * connection->request_bytes + connection->offset_at;
        put_int(&at, connection->fetch_offset, 8);
        connection->fetch_offset += offset_step;
        if (connection->fetch_offset >= offset_end) connection->fetch_offset = 0;
    }
}

static void send_requests(struct connection *connection) {
    while (connection->unsent) {
        int first = connection->first_slot, contiguous = connection->slots - first;
        if (contiguous > connection->unsent) contiguous = connection->unsent;
        size_t size = connection->request_bytes;
        struct iovec parts[2] = {
            {connection->requests + (size_t)first * size + connection->sent_bytes,
             (size_t)contiguous * size - connection->sent_bytes},
            {connection->requests, (size_t)(connection->unsent - contiguous) * size},
        };
        int64_t at_ns = now_ns();
        size_t sent = send_some(connection, parts, parts[1].iov_len ? 2 : 1);
        if (sent == 0) return;
        /* A request counts from the call that takes its first byte. */
        size_t begun_before = connection->sent_bytes > 0;
        sent += connection->sent_bytes;
        size_t begun = (sent + size - 1) / size;
        for (size_t i = begun_before; i < begun; i++) push_under_way(connection, at_ns, 1);
        int complete = (int)(sent / size);
        connection->first_slot = (first + complete) % connection->slots;
        connection->unsent -= complete;
        connection->sent_bytes = sent % size;
    }
    want_write(connection, 0);
}

static void on_closed_response(struct connection *connection, int64_t at_ns) {
    int slot = pop_under_way(connection);
    add_sample(&latencies, at_ns - connection->under_way[slot]);
    bytes += connection->is_fetch ? connection->expected + 4 : connection->request_bytes;
    if (connection->is_fetch && connection->expected < strlen(topic) + 80) empty++;
    if (at_ns < end_ns) queue_request(connection);
}

/* Encode all requests of the ring, each for the next partition of the connection's share. */
static void fill_closed(struct connection *connection, int64_t records, int64_t record_bytes, int acks) {
    uint8_t *value = allocate((size_t)record_bytes), *encoded = allocate(connection->buffer_capacity);
    uint8_t *at = connection->requests, *end = encoded;
    if (!connection->is_fetch) {
        uint8_t *batch = begin_batch(&end);
        for (int64_t i = 0; i < records; i++) {
            for (int64_t k = 0; k < record_bytes; k++) value[k] = (uint8_t)('a' + rand() % 26);
            put_record(&end, i, value, (size_t)record_bytes);
        }
        end_batch(batch, end, records);
    }
    for (int slot = 0; slot < connection->slots; slot++) {
        int partition = connection->share[slot % connection->share_count];
        if (connection->is_fetch) {
            connection->offset_at = put_fetch(&at, partition, 0, int_option("fetch_bytes", "1048576"));
            continue;
        }
        uint8_t *request = begin_produce(&at, partition, acks, (size_t)(end - encoded));
        put_bytes(&at, encoded, (size_t)(end - encoded));
        end_produce(request, &at);
    }
    connection->request_bytes = (size_t)(at - connection->requests) / (size_t)connection->slots;
    free(value);
    free(encoded);
}

static double closed_loop(int is_fetch) {
    int count = (int)int_option("connections", NULL), in_flight = (int)int_option("in_flight", NULL);
    int64_t partitions = int_option("partitions", NULL), records = int_option("records", "1");
    int64_t record_bytes = int_option("record_bytes", "100");
    int acks = (int)int_option("acks", "1"), *ports = leader_ports(partitions);
    offset_end = int_option("offset_end", "1");
    offset_step = int_option("step", "1");
    size_t request_max = 4096 + (is_fetch ? 0 : (size_t)records * (size_t)(record_bytes + RECORD_OVERHEAD));
    struct connection *connections = allocate((size_t)count * sizeof *connections);
    for (int i = 0; i < count; i++) {
        struct connection *connection = connections + i;
        connection->is_fetch = is_fetch;
        connection->share = allocate((size_t)partitions * sizeof(int));
        connection->share_count = share_of(i, count, ports, partitions, connection->share);
        connection->fetch_offset = i * offset_step * 7 % offset_end / offset_step * offset_step;
        int slots = connection->share_count > in_flight ? connection->share_count : in_flight;
        prepare(connection, slots, request_max * (size_t)slots);
        fill_closed(connection, records, record_bytes, acks);
        open_connection(connection, ports[connection->share[0]], HEAD_BYTES);
    }
    int64_t start_ns = now_ns(), last_ns = start_ns;
    end_ns = start_ns + (int64_t)(real_option("seconds", NULL) * 1e9);
    for (int i = 0; i < count; i++) {
        while (connections[i].unsent < in_flight) queue_request(connections + i);
        send_requests(connections + i);
    }
    for (int is_busy = 1; is_busy;) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, 1000);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP)) receive(connection, on_closed_response);
            send_requests(connection);
        }
        last_ns = now_ns();
        if (last_ns > end_ns + DRAIN_S * 1000000000LL) fail("requests were not answered within %d s", DRAIN_S);
        is_busy = last_ns < end_ns;
        for (int i = 0; i < count && !is_busy; i++)
            is_busy = connections[i].under_way_count || connections[i].unsent;
    }
    return (double)(last_ns - start_ns) / 1e9;
}

/* The open loop */

static int64_t start_ns, discard_ns, record_count, partition_count, arrived;
static double records_per_s;
static size_t value_bytes;

static int64_t due_ns(int64_t record) {
    return start_ns + (int64_t)((double)record * 1e9 / records_per_s);
}

static void record_latency(struct samples *samples, int64_t due, int64_t at_ns) {
    if (due >= start_ns + discard_ns) add_sample(samples, at_ns - due);
}

static void send_buffer(struct connection *connection) {
    while (connection->sent_bytes < connection->buffered_bytes) {
        size_t left = connection->buffered_bytes - connection->sent_bytes;
        struct iovec part = {connection->requests + connection->sent_bytes, left};
        size_t sent = send_some(connection, &part, 1);
        if (sent == 0) return;
        connection->sent_bytes += sent;
    }
    connection->sent_bytes = connection->buffered_bytes = 0;
    want_write(connection, 0);
}

/* Where the next request is encoded; what is still unsent moves to the front. */
static uint8_t *buffer_end(struct connection *connection) {
    connection->buffered_bytes -= connection->sent_bytes;
    memmove(connection->requests, connection->requests + connection->sent_bytes, connection->buffered_bytes);
    connection->sent_bytes = 0;
    return connection->requests + connection->buffered_bytes;
}

/* One batch of all records of the partition that are due, if another one may be under way. */
static int produce_due(struct connection *connection, int64_t now) {
    int64_t first = connection->next_record, record = first, count = 0;
    if (connection->under_way_count == connection->slots) return 0;
    static uint8_t batch_buffer[BATCH_BYTES_MAX + 4096];
    uint8_t value[1024], *end = batch_buffer, *batch = begin_batch(&end);
    memset(value, 'v', sizeof value);
    while (record < record_count && due_ns(record) <= now &&
           end + value_bytes + RECORD_OVERHEAD < batch_buffer + BATCH_BYTES_MAX) {
        int64_t due = due_ns(record);
        memcpy(value, &due, sizeof due);
        put_record(&end, count++, value, value_bytes);
        record += partition_count;
    }
    if (count == 0) return 0;
    end_batch(batch, end, count);
    uint8_t *at = buffer_end(connection);
    uint8_t *request = begin_produce(&at, connection->partition, -1, (size_t)(end - batch));
    put_bytes(&at, batch, (size_t)(end - batch));
    end_produce(request, &at);
    connection->buffered_bytes = (size_t)(at - connection->requests);
    connection->next_record = record;
    push_under_way(connection, first, count);
    send_buffer(connection);
    return 1;
}

static void fetch_next(struct connection *connection) {
    uint8_t *at = buffer_end(connection);
    put_fetch(&at, connection->partition, connection->fetch_offset, 1 << 20);
    connection->buffered_bytes = (size_t)(at - connection->requests);
    send_buffer(connection);
}

/* The records of one batch: their values begin with the moment at which they were due. */
static void read_batch(const uint8_t *batch, int64_t at_ns) {
    const uint8_t *at = batch + BATCH_OVERHEAD - 4;
    for (int64_t count = get_int(&at, 4); count > 0; count--) {
        int64_t length = get_zigzag(&at), due;
        const uint8_t *next = at + length;
        at += 1;
        get_zigzag(&at);
        get_zigzag(&at);
        get_zigzag(&at);
        get_zigzag(&at);
        memcpy(&due, at, sizeof due);
        record_latency(&arrivals, due, at_ns);
        arrived++;
        at = next;
    }
}

static void on_fetched(struct connection *connection, int64_t at_ns) {
    const uint8_t *at = partition_error(connection->response, 1) + 2 + 8 + 8 + 8;
    if (connection->expected > connection->capacity) fail("a response of %zu bytes", connection->expected);
    uint64_t aborted = get_varint(&at);
    if (aborted > 1) fail("aborted transactions in the topic");
    at += 4;
    uint64_t length = get_varint(&at);
    const uint8_t *end = at + (length ? length - 1 : 0);
    while (end - at >= BATCH_OVERHEAD) {
        const uint8_t *field = at;
        int64_t base_offset = get_int(&field, 8), batch_bytes = get_int(&field, 4) + 12;
        if (batch_bytes > end - at) break;
        field = at + 23;
        read_batch(at, at_ns);
        connection->fetch_offset = base_offset + get_int(&field, 4) + 1;
        at += batch_bytes;
    }
    fetch_next(connection);
}

static void on_acknowledged(struct connection *connection, int64_t at_ns) {
    int slot = pop_under_way(connection);
    int64_t record = connection->under_way[slot];
    for (int64_t i = 0; i < connection->counts[slot]; i++, record += partition_count)
        record_latency(&latencies, due_ns(record), at_ns);
    connection->acked_record = record;
}

static void on_open_response(struct connection *connection, int64_t at_ns) {
    (connection->is_fetch ? on_fetched : on_acknowledged)(connection, at_ns);
}

/* Wake up when the next record is due that may be sent at all. */
static void set_timer(int timer, const struct connection *producers) {
    int64_t next_ns = INT64_MAX;
    for (int64_t i = 0; i < partition_count; i++)
        if (producers[i].next_record < record_count && producers[i].under_way_count < producers[i].slots) {
            int64_t due = due_ns(producers[i].next_record);
            if (due < next_ns) next_ns = due;
        }
    struct itimerspec when = {0};
    if (next_ns != INT64_MAX) {
        when.it_value.tv_sec = next_ns / 1000000000;
        when.it_value.tv_nsec = next_ns % 1000000000;
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static int is_complete(const struct connection *producers) {
    for (int64_t i = 0; i < partition_count; i++)
        if (producers[i].acked_record < record_count) return 0;
    return arrived >= record_count;
}

static double open_loop(void) {
    int port = (int)int_option("port", NULL), slots = (int)int_option("in_flight", "5");
    double seconds = real_option("seconds", NULL), discard_s = real_option("discard", "0");
    partition_count = int_option("partitions", NULL);
    records_per_s = real_option("rate", NULL);
    value_bytes = (size_t)int_option("record_bytes", "100");
    if (value_bytes < sizeof(int64_t) || value_bytes > 1024) fail("record_bytes is 8 to 1024");
    discard_ns = (int64_t)(discard_s * 1e9);
    record_count = (int64_t)((seconds + discard_s) * records_per_s);
    struct connection *producers = allocate((size_t)partition_count * 2 * sizeof *producers);
    struct connection *consumers = producers + partition_count;
    for (int i = 0; i < partition_count; i++) {
        producers[i].partition = consumers[i].partition = i;
        producers[i].next_record = producers[i].acked_record = i;
        consumers[i].is_fetch = 1;
        prepare(producers + i, slots, (size_t)slots * (BATCH_BYTES_MAX + 4096));
        prepare(consumers + i, 1, 4096);
        open_connection(producers + i, port, HEAD_BYTES);
        open_connection(consumers + i, port, RESPONSE_BYTES_MAX);
        fetch_next(consumers + i);
    }
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
    start_ns = now_ns();
    int64_t limit_ns = start_ns + (int64_t)((seconds + discard_s + DRAIN_S) * 1e9);
    while (!is_complete(producers)) {
        for (int64_t i = 0; i < partition_count; i++)
            while (produce_due(producers + i, now_ns())) continue;
        set_timer(timer, producers);
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, 1000);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            uint64_t expirations;
            if (connection == NULL) {
                if (read(timer, &expirations, sizeof expirations) < 0 && errno != EAGAIN) fail("timer");
                continue;
            }
            if (events[i].events & (EPOLLIN | EPOLLHUP)) receive(connection, on_open_response);
            if (events[i].events & EPOLLOUT) send_buffer(connection);
        }
        if (errors) fail("the broker refused a request");
        if (now_ns() > limit_ns) fail("%lld of %lld records arrived", (long long)arrived, (long long)record_count);
    }
    return (double)(now_ns() - start_ns) / 1e9;
}

/* Connections, one after the other */

/* Opens and closes connections until the end; returns their number. */
static uint64_t connect_until_end(int port) {
    uint64_t count = 0;
    while (now_ns() < end_ns) {
        void *tls;
        int connected = connect_to(port, &tls);
        if (tls) {
            openssl.SSL_shutdown(tls);
            openssl.SSL_free(tls);
        }
        close(connected);
        count++;
    }
    return count;
}

static double connect_loop(void) {
    int port = (int)int_option("port", NULL), processes = (int)int_option("processes", "1"), results[2];
    if (pipe(results)) fail("pipe: %s", strerror(errno));
    int64_t start = now_ns();
    end_ns = start + (int64_t)(real_option("seconds", NULL) * 1e9);
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            srand((unsigned)getpid());
            uint64_t count = connect_until_end(port);
            _exit(write(results[1], &count, sizeof count) != sizeof count);
        }
    for (int i = 0, status; i < processes; i++)
        if (wait(&status) < 0 || status) errors++;
    close(results[1]);
    for (uint64_t count; read(results[0], &count, sizeof count) == sizeof count;) responses += count;
    return (double)(now_ns() - start) / 1e9;
}

/* The closed loop over HTTP */

struct http_connection {
    struct connection connection; /* First, as the poller returns it. */
    size_t number;                /* Of the request that is under way. */
    int64_t sent_ns;
    int status;                   /* 0 until the head of the response is complete. */
    int is_under_way;
};

static struct http_request *http_requests;
static size_t http_request_count, http_body_min;

static void send_http(struct http_connection *http) {
    struct connection *connection = &http->connection;
    const struct http_request *request = http_requests + http->number;
    while (http->is_under_way && connection->sent_bytes < request->length) {
        struct iovec part = {request->bytes + connection->sent_bytes, request->length - connection->sent_bytes};
        if (connection->sent_bytes == 0) http->sent_ns = now_ns();
        size_t sent = send_some(connection, &part, 1);
        if (sent == 0) return;
        connection->sent_bytes += sent;
    }
    want_write(connection, 0);
}

static void on_http_response(struct http_connection *http, int64_t at_ns) {
    struct connection *connection = &http->connection;
    const char *body = memchr(connection->response, 0, connection->capacity);
    size_t body_bytes = connection->expected - (size_t)((const uint8_t *)body + 4 - connection->response);
    responses++;
    bytes += http_requests[http->number].length + connection->expected;
    add_sample(&latencies, at_ns - http->sent_ns);
    if (http->status != HTTP_OK && errors++ < 3) fprintf(stderr, "status %d: %.300s\n", http->status, body + 4);
    if (body_bytes < http_body_min) empty++;
    memset(connection->response, 0, connection->received < connection->capacity ? connection->received
                                                                               : connection->capacity);
    connection->sent_bytes = connection->received = 0;
    http->status = 0;
    http->number = (http->number + 1) % http_request_count;
    http->is_under_way = at_ns < end_ns;
}

static void receive_http(struct http_connection *http) {
    struct connection *connection = &http->connection;
    size_t end = receive_some(connection), room = connection->capacity - 1;
    int64_t at_ns = now_ns();
    if (connection->received < room)
        memcpy(connection->response + connection->received, receive_buffer,
               end < room - connection->received ? end : room - connection->received);
    connection->received += end;
    if (http->status == 0) {
        size_t kept = connection->received < room ? connection->received : room;
        http->status = read_head(connection->response, kept, &connection->expected);
        if (http->status == 0 && kept == room) fail("a head of more than %zu bytes", room);
    }
    if (http->status == 0 || connection->received < connection->expected) return;
    if (connection->received > connection->expected) fail("more than one response to a request");
    on_http_response(http, at_ns);
}

static double http_loop(void) {
    int count = (int)int_option("connections", NULL), port = (int)int_option("port", NULL);
    http_requests = read_requests(text_option("requests", NULL), &http_request_count);
    http_body_min = (size_t)int_option("body_min", "0");
    struct http_connection *connections = allocate((size_t)count * sizeof *connections);
    for (int i = 0; i < count; i++) {
        connections[i].number = (size_t)i * 7 % http_request_count;
        open_connection(&connections[i].connection, port, HTTP_HEAD_BYTES_MAX + 1);
    }
    int64_t start = now_ns(), last_ns = start;
    end_ns = start + (int64_t)(real_option("seconds", NULL) * 1e9);
    for (int i = 0; i < count; i++) {
        connections[i].is_under_way = 1;
        send_http(connections + i);
    }
    for (int is_busy = 1; is_busy;) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, 1000);
        for (int i = 0; i < ready; i++) {
            struct http_connection *http = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP)) receive_http(http);
            send_http(http);
        }
        last_ns = now_ns();
        if (last_ns > end_ns + DRAIN_S * 1000000000LL) fail("requests were not answered within %d s", DRAIN_S);
        is_busy = last_ns < end_ns;
        for (int i = 0; i < count && !is_busy; i++) is_busy = connections[i].is_under_way;
    }
    return (double)(last_ns - start) / 1e9;
}

int main(int count, char **values) {
    if (count < 2) fail("usage: loadgen produce|fetch|latency|connect|http key=value ...");
    argument_count = count;
    argument_values = values;
    if (*text_option("tls", "")) load_openssl(text_option("tls", ""));
    int connects = !strcmp(values[1], "connect"), is_http = !strcmp(values[1], "http");
    topic = text_option("topic", connects || is_http ? "" : NULL);
    poller = epoll_create1(0);
    receive_buffer = allocate(RECEIVE_BYTES);
    int is_open = !strcmp(values[1], "latency");
    double seconds = connects  ? connect_loop()
                     : is_http ? http_loop()
                     : is_open ? open_loop()
                               : closed_loop(!strcmp(values[1], "fetch"));
    write_samples(&latencies, text_option("latencies", ""));
    write_samples(&arrivals, text_option("arrivals", ""));
    printf("{\"requests\": %llu, \"bytes\": %llu, \"errors\": %llu, \"empty\": %llu, \"seconds\": %.6f}\n",
           (unsigned long long)responses, (unsigned long long)bytes, (unsigned long long)errors,
           (unsigned long long)empty, seconds);
    return 0;
}
