// SPDX-License-Identifier: Apache-2.0
/* A scripted agent in a thread of the test: answers hello, create and publish as registration.md says, or wrongly on purpose. It keeps
 * the slab mapped, so that a test reads regions as a reader would. Include after onlooker.h. */
#ifndef PEER_H
#define PEER_H

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

typedef enum peer_fault {
    PEER_GOOD,
    /* hello */
    PEER_HELLO_EOF, PEER_HELLO_GARBAGE, PEER_HELLO_EMPTY, PEER_HELLO_HUGE, PEER_HELLO_DEEP, PEER_HELLO_VERSION, PEER_HELLO_REFUSED,
    PEER_HELLO_UNFINISHED, PEER_HELLO_BINARY,
    /* create */
    PEER_CREATE_EOF, PEER_CREATE_GARBAGE, PEER_CREATE_NO_REGION, PEER_CREATE_NO_DESCRIPTOR, PEER_CREATE_TWO_DESCRIPTORS,
    PEER_CREATE_MANY_DESCRIPTORS, PEER_CREATE_PIPE, PEER_CREATE_FILE, PEER_CREATE_UNSEALED, PEER_CREATE_SHORT, PEER_CREATE_READ_ONLY,
    PEER_CREATE_ODD_OFFSET, PEER_CREATE_FAR_OFFSET, PEER_CREATE_OVERFLOW, PEER_CREATE_OTHER_LENGTH, PEER_CREATE_SMALL_MAPPING,
    PEER_CREATE_BAD_ID, PEER_CREATE_BAD_GENERATION, PEER_CREATE_NEGATIVE, PEER_CREATE_DENIED, PEER_CREATE_DUPLICATE,
    PEER_CREATE_REFUSED,
    /* publish */
    PEER_PUBLISH_EOF, PEER_PUBLISH_GARBAGE, PEER_PUBLISH_REFUSED,
    /* any time */
    PEER_CHATTERS, PEER_SILENT,
    PEER_FAULTS
} peer_fault_t;

enum { PEER_CONNECTIONS = 16, PEER_SLAB_BYTES = 16 << 20 };

typedef struct peer_range {
    uint64_t offset, id, generation;
} peer_range_t;

typedef struct peer {
    char path[108];
    int listener, wake[2], slab, connections[PEER_CONNECTIONS];
    unsigned char *memory; /* the slab, as a reader sees it */
    uint64_t next_offset, next_id;
    pthread_t thread;
    int stop, cut;
    peer_fault_t fault; /* atomic */
    int resume;         /* atomic: answer a create with the region's last range, resumed */
    peer_range_t ranges[2];                 /* last ranges of the section's region, and of the region called shop; atomic */
    int hellos, creates, publishes, closed; /* atomic */
    char request[131072];                   /* last create; read it when `creates` has moved */
} peer_t;

#define PEER_GET(field) __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define PEER_SET(field, value) __atomic_store_n(&(field), value, __ATOMIC_SEQ_CST)
#define PEER_COUNT(field) ((void)__atomic_fetch_add(&(field), 1, __ATOMIC_SEQ_CST))

static int peer_memfd(off_t bytes, int seals) {
    int fd = memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, bytes) != 0 || (seals && fcntl(fd, F_ADD_SEALS, seals) != 0)) abort();
    return fd;
}

static void peer_send(int to, const void *bytes, size_t n, const int *fds, size_t fd_count) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(64 * sizeof(int))];
    } control;
    struct msghdr message;
    struct iovec part;
    memset(&message, 0, sizeof message);
    memset(&control, 0, sizeof control);
    part.iov_base = (void *)(uintptr_t)bytes;
    part.iov_len = n;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd_count) {
        message.msg_control = control.space;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof(int));
    }
    (void)sendmsg(to, &message, MSG_NOSIGNAL);
}

static void peer_say(int to, const char *text) { peer_send(to, text, strlen(text), (const int *)0, 0); }

/* Sum of the groups' blocks in a create request. */
static uint64_t peer_blocks(const char *request) {
    uint64_t blocks = 0;
    const char *at = request;
    while ((at = strstr(at, "\"blocks\":")) != (const char *)0) blocks += strtoull(at += 9, (char **)0, 10);
    return blocks;
}

/* Answers a hello; 0 closes the connection. */
static int peer_hello(int to, peer_fault_t fault) {
    static char large[60000];
    switch (fault) {
    case PEER_HELLO_EOF: return 0;
    case PEER_HELLO_GARBAGE: peer_say(to, "HTTP/1.1 400 Bad Request\r\n\r\n"); break;
    case PEER_HELLO_EMPTY: peer_say(to, "{}"); break;
    case PEER_HELLO_UNFINISHED: peer_say(to, "{\"ok\":true,\"version\":1,\"agent\":\"0.1\\"); break;
    case PEER_HELLO_BINARY: peer_send(to, "\0\377\0\"{[", 6, (const int *)0, 0); break;
    case PEER_HELLO_HUGE:
        memset(large, ' ', sizeof large);
        peer_send(to, large, sizeof large, (const int *)0, 0);
        break;
    case PEER_HELLO_DEEP:
        memset(large, '[', 8000);
        memcpy(large, "{\"x\":", 5);
        peer_send(to, large, 8000, (const int *)0, 0);
        break;
    case PEER_HELLO_VERSION: peer_say(to, "{\"ok\":true,\"version\":2,\"agent\":\"9\"}"); break;
    case PEER_HELLO_REFUSED: peer_say(to, "{\"ok\":false,\"error\":\"denied\",\"message\":\"not \\\"you\\\"\\u0007\"}"); break;
    case PEER_SILENT: break;
    default: peer_say(to, " { \"agent\" : \"0.1.0\", \"odd\":[1,{\"ok\":false}], \"ok\" : true ,\"version\":1, \"socket_uid\":0 } ");
    }
    return 1;
}

static int peer_create(peer_t *peer, int to, peer_fault_t fault) {
    char answer[512];
    int fds[32], fd_count = 1, i, made = -1;
    uint64_t bytes = peer_blocks(peer->request) * 1024, mapped = (bytes + 4095) / 4096 * 4096, offset, id, generation;
    const char *resumed = "false";
    peer_range_t *range = &peer->ranges[strstr(peer->request, "\"name\":\"shop\"") != (char *)0];
    PEER_COUNT(peer->creates);
    fds[0] = peer->slab;
    if (PEER_GET(peer->resume) && PEER_GET(range->id)) {
        offset = PEER_GET(range->offset);
        id = PEER_GET(range->id);
        generation = PEER_GET(range->generation);
        resumed = "true";
    } else {
        offset = peer->next_offset;
        if (offset + mapped > PEER_SLAB_BYTES) offset = 0;
        peer->next_offset = offset + mapped;
        memset(peer->memory + offset, 0, mapped);
        id = peer->next_id++;
        generation = 0xABC000 + id % 4096;
    }
    switch (fault) {
    case PEER_CREATE_EOF: return 0;
    case PEER_CREATE_GARBAGE: peer_send(to, "\x80\x81", 2, fds, 1); return 1;
    case PEER_CREATE_NO_REGION: peer_send(to, "{\"ok\":true}", 11, fds, 1); return 1;
    case PEER_CREATE_NO_DESCRIPTOR: fd_count = 0; break;
    case PEER_CREATE_TWO_DESCRIPTORS: fd_count = 2; break;
    case PEER_CREATE_MANY_DESCRIPTORS: fd_count = 32; break;
    case PEER_CREATE_PIPE: {
        int ends[2];
        if (pipe(ends) != 0) abort();
        (void)close(ends[1]);
        fds[0] = made = ends[0];
        break;
    }
    case PEER_CREATE_FILE: {
        char name[] = "/tmp/onlooker-test-XXXXXX";
        fds[0] = made = mkstemp(name);
        (void)unlink(name);
        if (made < 0 || ftruncate(made, PEER_SLAB_BYTES) != 0) abort();
        break;
    }
    case PEER_CREATE_UNSEALED: fds[0] = made = peer_memfd(PEER_SLAB_BYTES, 0); break;
    case PEER_CREATE_SHORT: fds[0] = made = peer_memfd((off_t)(offset + mapped - 4096), F_SEAL_SHRINK | F_SEAL_GROW); break;
    case PEER_CREATE_READ_ONLY: fds[0] = made = peer_memfd(PEER_SLAB_BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE); break;
    case PEER_CREATE_ODD_OFFSET: offset += 8; break;
    case PEER_CREATE_FAR_OFFSET: offset = PEER_SLAB_BYTES; break;
    case PEER_CREATE_OVERFLOW: offset = 0xFFFFFFFFFFFFF000u; break;
    case PEER_CREATE_OTHER_LENGTH: bytes += 1024; break;
    case PEER_CREATE_SMALL_MAPPING: mapped -= 4096; break;
    case PEER_CREATE_BAD_ID: id = 1 << 24; break;
    case PEER_CREATE_BAD_GENERATION: generation = 0; break;
    case PEER_CREATE_NEGATIVE: id = (uint64_t)0 - 1; break;
    case PEER_CREATE_DENIED: peer_say(to, "{\"ok\":false,\"error\":\"denied\",\"message\":\"never\"}"); return 1;
    case PEER_CREATE_DUPLICATE: peer_say(to, "{\"ok\":false,\"error\":\"duplicate\",\"message\":\"still there\"}"); return 1;
    case PEER_CREATE_REFUSED: peer_say(to, "{\"ok\":false,\"error\":\"quota\",\"message\":\"too much\"}"); return 1;
    case PEER_SILENT: return 1;
    default: break;
    }
    for (i = 1; i < 32; i++) fds[i] = fds[0];
    (void)snprintf(answer, sizeof answer,
                   "{\"ok\":true,\"region\":{\"id\":%s%llu,\"generation\":%llu,\"offset\":%llu,\"bytes\":%llu,\"mapped_bytes\":%llu,"
                   "\"slab_bytes\":%d,\"resumed\":%s}}",
                   fault == PEER_CREATE_NEGATIVE ? "-" : "", (unsigned long long)id, (unsigned long long)generation,
                   (unsigned long long)offset, (unsigned long long)bytes, (unsigned long long)mapped, PEER_SLAB_BYTES, resumed);
    if (fault < PEER_CREATE_EOF || fault > PEER_CREATE_REFUSED) {
        PEER_SET(range->offset, offset);
        PEER_SET(range->generation, generation);
        PEER_SET(range->id, id);
    }
    peer_send(to, answer, strlen(answer), fds, (size_t)fd_count);
    if (made >= 0) (void)close(made);
    return 1;
}

/* One request; 0 closes the connection. */
static int peer_serve(peer_t *peer, int connection) {
    static char request[131072];
    peer_fault_t fault = PEER_GET(peer->fault);
    ssize_t n = recv(connection, request, sizeof request - 1, 0);
    if (n <= 0) {
        PEER_COUNT(peer->closed);
        return 0;
    }
    request[n] = 0;
    if (strstr(request, "\"op\":\"hello\"")) {
        PEER_COUNT(peer->hellos);
        return peer_hello(connection, fault);
    }
    if (strstr(request, "\"op\":\"create\"")) {
        memcpy(peer->request, request, (size_t)n + 1);
        return peer_create(peer, connection, fault);
    }
    if (!strstr(request, "\"op\":\"publish\"")) return 0;
    if (fault == PEER_PUBLISH_EOF) return 0;
    if (fault == PEER_PUBLISH_GARBAGE) peer_say(connection, "[]");
    else if (fault == PEER_PUBLISH_REFUSED) peer_say(connection, "{\"ok\":false,\"error\":\"internal\",\"message\":\"no\"}");
    else if (fault != PEER_SILENT) peer_say(connection, "{\"ok\":true}");
    if (fault == PEER_CHATTERS) peer_say(connection, "{\"ok\":true}");
    PEER_COUNT(peer->publishes);
    return 1;
}

static void *peer_run(void *context) {
    peer_t *peer = (peer_t *)context;
    struct pollfd polled[PEER_CONNECTIONS + 2];
    int i;
    while (!PEER_GET(peer->stop)) {
        for (i = 0; i < PEER_CONNECTIONS + 2; i++) {
            polled[i].fd = i < PEER_CONNECTIONS ? peer->connections[i] : i == PEER_CONNECTIONS ? peer->listener : peer->wake[0];
            polled[i].events = POLLIN;
            polled[i].revents = 0;
        }
        if (poll(polled, PEER_CONNECTIONS + 2, -1) < 0) continue;
        if (PEER_GET(peer->cut)) {
            char byte;
            if (read(peer->wake[0], &byte, 1) != 1) abort();
            for (i = 0; i < PEER_CONNECTIONS; i++) {
                if (peer->connections[i] >= 0) (void)close(peer->connections[i]);
                peer->connections[i] = -1;
            }
            PEER_SET(peer->cut, 0);
            continue;
        }
        for (i = 0; i < PEER_CONNECTIONS; i++) {
            if (polled[i].fd < 0 || !polled[i].revents || peer_serve(peer, polled[i].fd)) continue;
            (void)close(polled[i].fd);
            peer->connections[i] = -1;
        }
        if (!polled[PEER_CONNECTIONS].revents) continue;
        for (i = 0; i < PEER_CONNECTIONS && peer->connections[i] >= 0; i++) continue;
        if (i < PEER_CONNECTIONS) peer->connections[i] = accept4(peer->listener, (struct sockaddr *)0, (socklen_t *)0, SOCK_CLOEXEC);
    }
    for (i = 0; i < PEER_CONNECTIONS; i++)
        if (peer->connections[i] >= 0) (void)close(peer->connections[i]);
    (void)close(peer->listener);
    return (void *)0;
}

/* A slab as the kernel responder uses it: an array of blocks that can be mapped. -1 where bpf(2) is not allowed. */
static int peer_bpf_slab(void) {
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.map_type = BPF_MAP_TYPE_ARRAY;
    attributes.key_size = 4;
    attributes.value_size = 1024;
    attributes.max_entries = PEER_SLAB_BYTES / 1024;
    attributes.map_flags = BPF_F_MMAPABLE;
    return (int)syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes);
}

static int peer_slab_is_bpf; /* for the next peer_start() */

/* The agent begins to listen at `path`, with a slab of its own. */
static void peer_start(peer_t *peer, const char *path, peer_fault_t fault) {
    struct sockaddr_un address;
    int i;
    memset(peer, 0, sizeof *peer);
    memset(&address, 0, sizeof address);
    (void)snprintf(peer->path, sizeof peer->path, "%s", path);
    peer->fault = fault;
    peer->next_id = 17;
    peer->next_offset = 40960;
    peer->slab = peer_slab_is_bpf ? peer_bpf_slab() : peer_memfd(PEER_SLAB_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
    peer->memory = (unsigned char *)mmap((void *)0, PEER_SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, peer->slab, 0);
    for (i = 0; i < PEER_CONNECTIONS; i++) peer->connections[i] = -1;
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, peer->path, sizeof address.sun_path);
    peer->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    (void)unlink(path);
    if (peer->memory == (unsigned char *)MAP_FAILED || bind(peer->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(peer->listener, 8) != 0 || pipe2(peer->wake, O_CLOEXEC) != 0 ||
        pthread_create(&peer->thread, (pthread_attr_t *)0, peer_run, peer) != 0) {
        perror("peer_start");
        abort();
    }
}

/* Closes all connections. */
static inline void peer_cut(peer_t *peer) {
    PEER_SET(peer->cut, 1);
    if (write(peer->wake[1], "", 1) != 1) abort();
    while (PEER_GET(peer->cut)) sched_yield();
}

static void peer_halt(peer_t *peer) {
    PEER_SET(peer->stop, 1);
    if (write(peer->wake[1], "", 1) != 1) abort();
    (void)pthread_join(peer->thread, (void **)0);
}

/* The agent is gone: connections close, the socket's file vanishes; its slab lives as long as it is mapped anywhere. */
static void peer_stop(peer_t *peer) {
    peer_halt(peer);
    (void)unlink(peer->path);
    (void)close(peer->wake[0]);
    (void)close(peer->wake[1]);
    (void)close(peer->slab);
    (void)munmap(peer->memory, PEER_SLAB_BYTES);
}

/* Of the region called shop, where a reader would find it. */
static inline uint64_t peer_word(const peer_t *peer, uint64_t block, uint64_t word) {
    const uint64_t *at = (const uint64_t *)(const void *)(peer->memory + PEER_GET(peer->ranges[1].offset)) + block * 128 + word;
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

/* Of the section's region: the word at this byte offset. */
static inline uint64_t peer_section_word(const peer_t *peer, size_t offset) {
    const uint64_t *at = (const uint64_t *)(const void *)(peer->memory + PEER_GET(peer->ranges[0].offset) + offset);
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

#endif
