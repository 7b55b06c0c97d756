/* TLS and SASL of the load generator. OpenSSL is loaded at run time, by the path in `tls`: its headers need not
 * be installed. One suite of TLS 1.3, no verification, no resumption: the same for every broker.
 */
#ifndef LOADGEN_TLS_H
#define LOADGEN_TLS_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "loadgen_encoding.h"

enum {
    TLS_1_3 = 0x0304,
    CTRL_MODE = 33,
    CTRL_SET_MIN_PROTO_VERSION = 123,
    /* Like a socket: a write may take a part, and may be repeated from another address. */
    MODE_OF_A_SOCKET = 0x1 | 0x2,
    TLS_WANT_READ = 2,
    TLS_WANT_WRITE = 3,
    SHA512_BYTES = 64,
    SASL_BYTES_MAX = 4096,
};

#define SUITE "TLS_AES_128_GCM_SHA256"

struct openssl {
    void *context;
    const void *(*TLS_client_method)(void);
    void *(*SSL_CTX_new)(const void *);
    long (*SSL_CTX_ctrl)(void *, int, long, void *);
    int (*SSL_CTX_set_ciphersuites)(void *, const char *);
    void *(*SSL_new)(void *);
    long (*SSL_ctrl)(void *, int, long, void *);
    int (*SSL_set_fd)(void *, int);
    int (*SSL_connect)(void *);
    int (*SSL_read)(void *, void *, int);
    int (*SSL_write)(void *, const void *, int);
    int (*SSL_get_error)(const void *, int);
    int (*SSL_shutdown)(void *);
    void (*SSL_free)(void *);
    const void *(*EVP_sha512)(void);
    unsigned char *(*HMAC)(const void *, const void *, int, const unsigned char *, size_t, unsigned char *,
                           unsigned int *);
    int (*PKCS5_PBKDF2_HMAC)(const char *, int, const unsigned char *, int, int, const void *, int, unsigned char *);
    int (*EVP_Digest)(const void *, size_t, unsigned char *, unsigned int *, const void *, void *);
    int (*EVP_EncodeBlock)(unsigned char *, const unsigned char *, int);
    int (*EVP_DecodeBlock)(unsigned char *, const unsigned char *, int);
};

static struct openssl openssl;

static void fail(const char *format, ...);

static void load_openssl(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) fail("%s", dlerror());
#define LOAD(name) \
    if (!(*(void **)&openssl.name = dlsym(library, #name))) fail("OpenSSL has no " #name)
    LOAD(TLS_client_method);
    LOAD(SSL_CTX_new);
    LOAD(SSL_CTX_ctrl);
    LOAD(SSL_CTX_set_ciphersuites);
    LOAD(SSL_new);
    LOAD(SSL_ctrl);
    LOAD(SSL_set_fd);
    LOAD(SSL_connect);
    LOAD(SSL_read);
    LOAD(SSL_write);
    LOAD(SSL_get_error);
    LOAD(SSL_shutdown);
    LOAD(SSL_free);
    LOAD(EVP_sha512);
    LOAD(HMAC);
    LOAD(PKCS5_PBKDF2_HMAC);
    LOAD(EVP_Digest);
    LOAD(EVP_EncodeBlock);
    LOAD(EVP_DecodeBlock);
#undef LOAD
    openssl.context = openssl.SSL_CTX_new(openssl.TLS_client_method());
    if (openssl.context == NULL || !openssl.SSL_CTX_set_ciphersuites(openssl.context, SUITE) ||
        !openssl.SSL_CTX_ctrl(openssl.context, CTRL_SET_MIN_PROTO_VERSION, TLS_1_3, NULL))
        fail("OpenSSL does not support TLS 1.3 with " SUITE);
}

/* The handshake, on a socket that blocks; NULL if OpenSSL is not loaded. */
static void *start_tls(int socket) {
    if (openssl.context == NULL) return NULL;
    void *tls = openssl.SSL_new(openssl.context);
    openssl.SSL_ctrl(tls, CTRL_MODE, MODE_OF_A_SOCKET, NULL);
    openssl.SSL_set_fd(tls, socket);
    if (openssl.SSL_connect(tls) != 1) fail("the TLS handshake failed");
    return tls;
}

/* Requests before the load, one at a time, on a socket that blocks. */

static void send_all(int socket, void *tls, const uint8_t *bytes, size_t length) {
    while (length) {
        ssize_t sent = tls ? openssl.SSL_write(tls, bytes, (int)length) : send(socket, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0) fail("the broker closed a connection before it was authenticated");
        bytes += sent;
        length -= (size_t)sent;
    }
}

static void receive_all(int socket, void *tls, uint8_t *bytes, size_t length) {
    while (length) {
        ssize_t received = tls ? openssl.SSL_read(tls, bytes, (int)length) : recv(socket, bytes, length, 0);
        if (received <= 0) fail("the broker closed a connection before it was authenticated");
        bytes += received;
        length -= (size_t)received;
    }
}

/* Send a request of version 1 with a classic header; returns the length of the response body. */
static size_t ask(int socket, void *tls, int api, const uint8_t *body, size_t length, uint8_t *response) {
    uint8_t request[SASL_BYTES_MAX + 32], *at = request, prefix[8];
    put_int(&at, 10 + (int64_t)length, 4);
    put_int(&at, api, 2);
    put_int(&at, 1, 2);
    put_int(&at, 1, 4);
    put_int(&at, -1, 2);
    put_bytes(&at, body, length);
    send_all(socket, tls, request, (size_t)(at - request));
    receive_all(socket, tls, prefix, sizeof prefix);
    const uint8_t *size = prefix;
    int64_t received = get_int(&size, 4) - 4;
    if (received < 2 || received > SASL_BYTES_MAX) fail("an unexpected response");
    receive_all(socket, tls, response, (size_t)received);
    const uint8_t *error = response;
    if (get_int(&error, 2)) fail("authentication was refused");
    return (size_t)received;
}

/* One token to the broker, one back. */
static size_t exchange(int socket, void *tls, const void *token, size_t length, char *answer) {
    uint8_t body[SASL_BYTES_MAX], *at = body, response[SASL_BYTES_MAX];
    put_int(&at, (int64_t)length, 4);
    put_bytes(&at, token, length);
    ask(socket, tls, 36, body, (size_t)(at - body), response);
    const uint8_t *read = response + 2;
    int64_t message = get_int(&read, 2);
    read += message > 0 ? message : 0;
    int64_t size = get_int(&read, 4);
    memcpy(answer, read, (size_t)size);
    answer[size] = 0;
    return (size_t)size;
}

static void hmac(const void *key, int key_bytes, const char *text, size_t length, uint8_t *result) {
    unsigned int size;
    openssl.HMAC(openssl.EVP_sha512(), key, key_bytes, (const uint8_t *)text, length, result, &size);
}

/* SCRAM-SHA-512 (RFC 5802). The salted password is computed once, as clients keep it. */
static void scram(int socket, void *tls, const char *user, const char *password) {
    static char known_salt[SASL_BYTES_MAX];
    static uint8_t salted[SHA512_BYTES];
    char first[512], server[SASL_BYTES_MAX], last[SASL_BYTES_MAX], transcript[SASL_BYTES_MAX * 3];
    snprintf(first, sizeof first, "n,,n=%s,r=%08x%08x%08x", user, rand(), rand(), rand());
    exchange(socket, tls, first, strlen(first), server);
    char *nonce = strstr(server, "r="), *salt = strstr(server, ",s="), *count = strstr(server, ",i=");
    if (nonce != server || salt == NULL || count == NULL) fail("an unexpected SCRAM message");
    int nonce_bytes = (int)(salt - nonce), salt_bytes = (int)(count - salt) - 3;
    if ((int)strlen(known_salt) != salt_bytes || strncmp(known_salt, salt + 3, (size_t)salt_bytes)) {
        uint8_t decoded[SASL_BYTES_MAX];
        int padding = (salt[2 + salt_bytes] == '=') + (salt[1 + salt_bytes] == '=');
        int size = openssl.EVP_DecodeBlock(decoded, (uint8_t *)salt + 3, salt_bytes) - padding;
        openssl.PKCS5_PBKDF2_HMAC(password, (int)strlen(password), decoded, size, atoi(count + 3),
                                  openssl.EVP_sha512(), SHA512_BYTES, salted);
        snprintf(known_salt, sizeof known_salt, "%.*s", salt_bytes, salt + 3);
    }
    uint8_t key[SHA512_BYTES], stored[SHA512_BYTES], proof[SHA512_BYTES], encoded[128];
    snprintf(last, sizeof last, "c=biws,%.*s", nonce_bytes, nonce);
    int length = snprintf(transcript, sizeof transcript, "%s,%s,%s", first + 3, server, last);
    hmac(salted, SHA512_BYTES, "Client Key", 10, key);
    openssl.EVP_Digest(key, SHA512_BYTES, stored, NULL, openssl.EVP_sha512(), NULL);
    hmac(stored, SHA512_BYTES, transcript, (size_t)length, proof);
    for (int i = 0; i < SHA512_BYTES; i++) proof[i] ^= key[i];
    openssl.EVP_EncodeBlock(encoded, proof, SHA512_BYTES);
    size_t end = strlen(last);
    snprintf(last + end, sizeof last - end, ",p=%s", encoded);
    exchange(socket, tls, last, strlen(last), server);
    if (strncmp(server, "v=", 2)) fail("SCRAM failed");
}

static void plain(int socket, void *tls, const char *user, const char *password) {
    char token[512], answer[SASL_BYTES_MAX];
    int length = snprintf(token, sizeof token, "%c%s%c%s", 0, user, 0, password);
    exchange(socket, tls, token, (size_t)length, answer);
}

/* Authenticate as `user`, by PLAIN or SCRAM-SHA-512. */
static void authenticate(int socket, void *tls, const char *mechanism, const char *user, const char *password) {
    uint8_t body[64], *at = body, response[SASL_BYTES_MAX];
    put_int(&at, (int64_t)strlen(mechanism), 2);
    put_bytes(&at, mechanism, strlen(mechanism));
    ask(socket, tls, 17, body, (size_t)(at - body), response);
    (strcmp(mechanism, "PLAIN") ? scram : plain)(socket, tls, user, password);
}

#endif
