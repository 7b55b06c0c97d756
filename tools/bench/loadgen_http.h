/* HTTP/1.1 as far as a load generator needs it: requests of a file, and the heads of responses. */
#ifndef LOADGEN_HTTP_H
#define LOADGEN_HTTP_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loadgen_encoding.h"

enum {
    HTTP_OK = 200,
    HTTP_HEAD_BYTES_MAX = 16384,
};

struct http_request {
    uint8_t *bytes;
    size_t length;
};

static void fail(const char *format, ...);
static void *allocate(size_t bytes);

/* The requests of a file, each behind its length in four bytes. */
static struct http_request *read_requests(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END)) fail("%s cannot be read", path);
    size_t size = (size_t)ftell(file);
    uint8_t *bytes = allocate(size + 1);
    rewind(file);
    if (fread(bytes, 1, size, file) != size || fclose(file)) fail("%s cannot be read", path);
    struct http_request *requests = allocate((size / 4 + 1) * sizeof *requests);
    *count = 0;
    for (const uint8_t *at = bytes, *end = bytes + size; at < end; at += requests[(*count)++].length) {
        if (end - at < 4) fail("%s is truncated", path);
        requests[*count].length = (size_t)get_int(&at, 4);
        if (requests[*count].length > (size_t)(end - at)) fail("%s is truncated", path);
        requests[*count].bytes = (uint8_t *)at;
    }
    if (*count == 0) fail("%s has no requests", path);
    return requests;
}

/* The status of a response, and its size with the head; 0 while the head is not complete. */
static int read_head(uint8_t *response, size_t length, size_t *size) {
    uint8_t *end = memmem(response, length, "\r\n\r\n", 4);
    if (end == NULL) return 0;
    *end = 0;
    int status = 0;
    const char *head = (const char *)response, *field = strcasestr(head, "\r\ncontent-length:");
    if (sscanf(head, "HTTP/1.1 %d", &status) != 1 || status == 0) fail("not a response of HTTP/1.1: %.80s", head);
    if (field == NULL) fail("a response without Content-Length: %.80s", head);
    *size = (size_t)(end - response) + 4 + strtoul(strchr(field, ':') + 1, NULL, 10);
    return status;
}

#endif
