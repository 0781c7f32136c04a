// SPDX-License-Identifier: Apache-2.0
/* onlooker_report.h against the golden datagrams: `report FILE`, crates/wire/tests/vectors/dta.txt. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* for check.h */
#endif
#include "../onlooker_report.h"

#include <stdlib.h>

#include "check.h"

struct record {
    char kind[32], primitive[32], key[160], payload[160], datagram[400];
    long long importance, immediate, sequence, reporter, table, access, generation, copies;
};

static size_t bytes_of(const char *digits, uint8_t *out) {
    size_t length = strlen(digits) / 2, at;
    unsigned byte;

    for (at = 0; at < length; at++) {
        if (sscanf(digits + 2 * at, "%2x", &byte) != 1) return 0;
        out[at] = (uint8_t)byte;
    }
    return length;
}

/* A line `name: value`. */
static void take(struct record *record, const char *line) {
    const char *value = strchr(line, ':');

    if (!value) return;
    value += value[1] == ' ' ? 2 : 1;
#define TEXT(field) \
    if (!strncmp(line, #field ":", sizeof(#field))) snprintf(record->field, sizeof(record->field), "%s", value)
#define NUMBER(field) \
    if (!strncmp(line, #field ":", sizeof(#field))) record->field = *value == '-' ? -1 : atoll(value)
    TEXT(kind);
    TEXT(primitive);
    TEXT(key);
    TEXT(payload);
    TEXT(datagram);
    NUMBER(importance);
    NUMBER(immediate);
    NUMBER(sequence);
    NUMBER(reporter);
    NUMBER(table);
    NUMBER(access);
    NUMBER(generation);
    NUMBER(copies);
}

static int check(const struct record *record) {
    uint8_t key[80], payload[80], expected[200], out[ONLOOKER_REPORT_BYTES];
    size_t key_bytes = bytes_of(record->key, key), payload_bytes = bytes_of(record->payload, payload), length, at;
    uint64_t addend = 0;
    struct onlooker_report report;

    /* Those that are refused have no primitive. */
    if (strcmp(record->kind, "report") || !*record->primitive || !strcmp(record->primitive, "probe")) return 0;
    report.table = (uint16_t)record->table;
    report.access = (uint32_t)record->access;
    report.reporter = (uint32_t)record->reporter;
    report.is_numbered = record->sequence >= 0;
    report.sequence = record->sequence >= 0 ? (uint32_t)record->sequence : 0;
    report.is_immediate = record->immediate != 0;
    report.importance = (uint8_t)record->importance;
    report.generation = (uint8_t)record->generation;
    if (!strcmp(record->primitive, "key_write")) {
        length = onlooker_report_key_write(out, &report, key, key_bytes, payload, payload_bytes, (unsigned)record->copies);
    } else if (!strcmp(record->primitive, "append")) {
        length = onlooker_report_append(out, &report, payload, payload_bytes);
    } else {
        for (at = 0; at < 8; at++) addend = addend << 8 | payload[at];
        length = onlooker_report_key_increment(out, &report, key, key_bytes, addend, (unsigned)record->copies);
    }
    CHECK_EQUAL(length, bytes_of(record->datagram, expected));
    CHECK(length && !memcmp(out, expected, length));
    return 1;
}

int main(int count, char **arguments) {
    struct record record;
    struct onlooker_report report = {1, 2, 3, 0, 0, 0, ONLOOKER_REPORT_LOW, 0};
    uint8_t out[ONLOOKER_REPORT_BYTES], key[65] = {0};
    char line[600];
    int checked = 0;
    FILE *file = count > 1 ? fopen(arguments[1], "r") : NULL;

    memset(&record, 0, sizeof(record));
    CHECK(file != NULL);
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = 0;
        if (*line) {
            take(&record, line);
            continue;
        }
        checked += check(&record);
        memset(&record, 0, sizeof(record));
    }
    checked += check(&record);
    CHECK(checked >= 8);
    if (file) fclose(file);
    CHECK_EQUAL(onlooker_report_append(out, &report, key, 0), 0);
    CHECK_EQUAL(onlooker_report_append(out, &report, key, 65), 0);
    CHECK_EQUAL(onlooker_report_key_write(out, &report, key, 0, key, 4, 2), 0);
    CHECK_EQUAL(onlooker_report_key_write(out, &report, key, 65, key, 4, 2), 0);
    CHECK_EQUAL(onlooker_report_key_write(out, &report, key, 4, key, 4, 0), 0);
    CHECK_EQUAL(onlooker_report_key_write(out, &report, key, 4, key, 4, 5), 0);
    CHECK_EQUAL(onlooker_report_key_write(out, &report, key, 64, key, 64, ONLOOKER_REPORT_ONLY(3)), ONLOOKER_REPORT_BYTES);
    report.importance = 3;
    CHECK_EQUAL(onlooker_report_append(out, &report, key, 4), 0);
    return check_report("report");
}
