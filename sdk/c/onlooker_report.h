// SPDX-License-Identifier: Apache-2.0
/*
 * onlooker_report.h - telemetry reports for switches, hosts and programs. One header, C99 or C++11, nothing to link, no memory taken, no operating system needed.
 *
 * Each function writes one report into `out`, which has room for ONLOOKER_REPORT_BYTES, and returns its length; 0: no such report is allowed. Send it as one UDP
 * datagram to port ONLOOKER_REPORT_PORT of the collector (docs/telemetry.md). Bytes: docs/format/dta.md.
 *
 *     uint8_t datagram[ONLOOKER_REPORT_BYTES];
 *     struct onlooker_report report = {.table = 1, .access = 0x1f3a90c7, .importance = ONLOOKER_REPORT_LOW};
 *     size_t length = onlooker_report_key_write(datagram, &report, flow, 13, path, 20, 2);
 *     if (length) sendto(socket, datagram, length, 0, collector, collector_bytes);
 *
 * Reports that must arrive have sequence numbers, probes and answers: the crate onlooker-reporter does that.
 */
#ifndef ONLOOKER_REPORT_H
#define ONLOOKER_REPORT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ONLOOKER_REPORT_PORT 40040
#define ONLOOKER_REPORT_HEADER_BYTES 20
#define ONLOOKER_REPORT_KEY_BYTES 64     /* at most */
#define ONLOOKER_REPORT_PAYLOAD_BYTES 64 /* at most */
#define ONLOOKER_REPORT_BYTES (ONLOOKER_REPORT_HEADER_BYTES + ONLOOKER_REPORT_KEY_BYTES + ONLOOKER_REPORT_PAYLOAD_BYTES)

/* For `copies`: copy n (0 to 3) alone, as compressing systems do, in the place of how many (1 to 4). */
#define ONLOOKER_REPORT_ONLY(n) (((n) + 1) << 4)

#define ONLOOKER_REPORT_LOW 0
#define ONLOOKER_REPORT_MEDIUM 1
#define ONLOOKER_REPORT_HIGH 2

/* What all reports have. */
struct onlooker_report {
    uint16_t table;          /* number of the table or list */
    uint32_t access;         /* its access key */
    uint32_t reporter;       /* who sends it */
    uint32_t sequence;       /* with `is_numbered` one more than the one before, modulo 2^32 */
    uint8_t is_numbered;     /* it can be sent again */
    uint8_t is_immediate;    /* whoever waits at the collector is woken */
    uint8_t importance;      /* ONLOOKER_REPORT_LOW to _HIGH */
    uint8_t generation;      /* of the list by which the collector was chosen; 0: none */
};

static inline void onlooker_report_put(uint8_t *out, uint32_t value, size_t bytes) {
    while (bytes-- > 0) {
        out[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

static inline size_t onlooker_report_write(uint8_t *out, const struct onlooker_report *report, uint8_t primitive, const void *key,
                                           size_t key_bytes, const void *payload, size_t payload_bytes, unsigned copies) {
    uint8_t flags = (uint8_t)(report->importance << 6 | (report->is_immediate ? 0x20 : 0) | (report->is_numbered ? 0x10 : 0));

    if (report->importance > ONLOOKER_REPORT_HIGH || key_bytes > ONLOOKER_REPORT_KEY_BYTES || payload_bytes < 1 ||
        payload_bytes > ONLOOKER_REPORT_PAYLOAD_BYTES)
        return 0;
    out[0] = (uint8_t)(0x10 | primitive);
    out[1] = flags;
    onlooker_report_put(out + 2, report->table, 2);
    onlooker_report_put(out + 4, report->access, 4);
    onlooker_report_put(out + 8, report->reporter, 4);
    onlooker_report_put(out + 12, report->is_numbered ? report->sequence : 0, 4);
    out[16] = (uint8_t)copies;
    out[17] = report->generation;
    out[18] = (uint8_t)key_bytes;
    out[19] = (uint8_t)payload_bytes;
    if (key_bytes)
        memcpy(out + ONLOOKER_REPORT_HEADER_BYTES, key, key_bytes);
    memcpy(out + ONLOOKER_REPORT_HEADER_BYTES + key_bytes, payload, payload_bytes);
    return ONLOOKER_REPORT_HEADER_BYTES + key_bytes + payload_bytes;
}

static inline int onlooker_report_is_copies(unsigned copies) {
    unsigned only = copies >> 4;

    return only ? only <= 4 && !(copies & 15) : copies >= 1 && copies <= 4;
}

/* The newest value of a key. */
static inline size_t onlooker_report_key_write(uint8_t *out, const struct onlooker_report *report, const void *key, size_t key_bytes,
                                               const void *payload, size_t payload_bytes, unsigned copies) {
    if (key_bytes < 1 || !onlooker_report_is_copies(copies))
        return 0;
    return onlooker_report_write(out, report, 1, key, key_bytes, payload, payload_bytes, copies);
}

/* An entry of a list. */
static inline size_t onlooker_report_append(uint8_t *out, const struct onlooker_report *report, const void *payload,
                                            size_t payload_bytes) {
    return onlooker_report_write(out, report, 2, NULL, 0, payload, payload_bytes, 0);
}

/* Added to what was counted of a key. */
static inline size_t onlooker_report_key_increment(uint8_t *out, const struct onlooker_report *report, const void *key,
                                                   size_t key_bytes, uint64_t addend, unsigned copies) {
    uint8_t payload[8];

    if (key_bytes < 1 || !onlooker_report_is_copies(copies))
        return 0;
    onlooker_report_put(payload, (uint32_t)(addend >> 32), 4);
    onlooker_report_put(payload + 4, (uint32_t)addend, 4);
    return onlooker_report_write(out, report, 3, key, key_bytes, payload, sizeof(payload), copies);
}

#endif
