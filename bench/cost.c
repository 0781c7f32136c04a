// SPDX-License-Identifier: Apache-2.0
/* What the SDK costs. Each figure is a median over rounds; what is compared is measured in turn within one round.
 *     gcc -O2 -pthread -Isdk/c bench/cost.c -o cost && ./cost
 * prints lines RESULT <name> <value> <unit> (expected <bound>) pass|fail; the status is 1 if one failed. */
#define ONLOOKER_IMPLEMENTATION
#include "onlooker.h"

#include <sys/wait.h>

enum { ROUNDS = 101, LOOPS = 100000, COMMITS = 5000 };

ONLOOKER_COUNTER(bench_total, "things", "Counted in the section");
/* The yardstick: an ordinary global and a plain relaxed atomic addition, in a cache line of its own as the other. */
static uint64_t plain_word __attribute__((aligned(64)));

static onlooker_region_t *region;
static onlooker_counter_t *region_total;
static onlooker_histogram_t latency;
static onlooker_guarded_t *small_group, *large_group;
static onlooker_table_t *table;
static onlooker_row_t row;
static int failures;

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((noinline)) static void plain_adds(void) {
    int i;
    for (i = 0; i < LOOPS; i++) (void)__atomic_fetch_add(&plain_word, 1, __ATOMIC_RELAXED);
}
__attribute__((noinline)) static void section_adds(void) {
    int i;
    for (i = 0; i < LOOPS; i++) onlooker_counter_inc(&bench_total);
}
__attribute__((noinline)) static void region_adds(void) {
    int i;
    onlooker_counter_t *counter = region_total;
    for (i = 0; i < LOOPS; i++) onlooker_counter_inc(counter);
}
__attribute__((noinline)) static void records(void) {
    int i;
    for (i = 0; i < LOOPS; i++) onlooker_histogram_record(&latency, (uint64_t)i * 37u);
}
__attribute__((noinline)) static void small_commits(void) {
    uint64_t values[5] = {1, 2, 3, 4, 5};
    int i;
    for (i = 0; i < COMMITS; i++) {
        values[0] = (uint64_t)i;
        onlooker_guarded_commit_values(small_group, values, sizeof values);
    }
}
__attribute__((noinline)) static void large_commits(void) {
    static uint64_t values[124];
    int i;
    for (i = 0; i < COMMITS; i++) {
        values[0] = (uint64_t)i;
        onlooker_guarded_commit_values(large_group, values, sizeof values);
    }
}
__attribute__((noinline)) static void table_adds(void) {
    int i;
    for (i = 0; i < COMMITS; i++) (void)onlooker_table_add(table, row, 0, 1);
}
static uint32_t crc_sink;
static uint64_t crc_block[128];
__attribute__((noinline)) static void crcs(void) {
    int i;
    for (i = 0; i < COMMITS; i++) {
        crc_block[0] = (uint64_t)i;
        crc_sink ^= onl_crc32(crc_block, 1016);
    }
}
__attribute__((noinline)) static void sliced_crcs(void) {
    int i;
    for (i = 0; i < COMMITS; i++) {
        crc_block[0] = (uint64_t)i;
        crc_sink ^= onl_crc_sliced(0xFFFFFFFFu, (const unsigned char *)crc_block, 1016);
    }
}
__attribute__((noinline)) static void clock_reads(void) {
    int i;
    for (i = 0; i < COMMITS; i++) crc_sink ^= (uint32_t)onl_now_ns();
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static void result(const char *name, double value, const char *unit, double bound) {
    int pass = value <= bound;
    failures += !pass;
    printf("RESULT %s %.3g %s (expected <= %g) %s\n", name, value, unit, bound, pass ? "pass" : "fail");
}

/* Moves the region to and fro between private memories: the code of the switch without an agent's delays. Median window, ns. */
static double switch_window_ns(onlooker_region_t *moved) {
    static double windows[ROUNDS];
    int i;
    for (i = 0; i < ROUNDS; i++) {
        onl_memory_t memory;
        uint64_t *mirror = (uint64_t *)0, *fresh;
        memset(&memory, 0, sizeof memory);
        onl_lock(&onl.lock);
        fresh = onl_map_private(moved->length, &mirror);
        if (!fresh) abort();
        (void)madvise(fresh, moved->length, MADV_POPULATE_WRITE);
        if (onl_switch(moved, fresh, mirror, &memory, 0) != 0) abort();
        windows[i] = (double)onl.last_window_ns;
        onl_unlock(&onl.lock);
    }
    return median(windows, ROUNDS);
}

static double fork_us(void) {
    static double times[ROUNDS];
    int i;
    for (i = 0; i < ROUNDS; i++) {
        uint64_t began = clock_ns();
        pid_t child = fork();
        if (child == 0) _exit(0);
        (void)waitpid(child, (int *)0, 0);
        times[i] = (double)(clock_ns() - began) / 1000;
    }
    return median(times, ROUNDS);
}

int main(void) {
    static void (*const bodies[])(void) = {plain_adds, section_adds, region_adds, records, small_commits,
                                          large_commits, table_adds, crcs, sliced_crcs, clock_reads};
    enum { BODIES = sizeof bodies / sizeof *bodies };
    static double times[BODIES][ROUNDS], ratios[2][ROUNDS];
    onlooker_region_t *large;
    onlooker_counter_array_t array;
    onlooker_key_t key;
    double medians[BODIES], with_us, without_us;
    int round, i;
    region = onlooker_region("bench");
    onlooker_new_counter(region, &region_total, "region_total", "things", "Counted in a region");
    onlooker_new_histogram(region, &latency, 3, 40, "latency_seconds", "seconds", "Latency");
    onlooker_scale(region, 1e-9);
    small_group = onlooker_new_guarded(region);
    large_group = onlooker_new_guarded(region);
    for (i = 0; i < 129; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "field_%d", i);
        (void)onlooker_guarded_field(i < 5 ? small_group : large_group, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, name, "", "");
    }
    table = onlooker_new_table(region, 100);
    onlooker_table_key_text(table, "client", 32);
    (void)onlooker_table_field(table, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "client_total", "", "");
    if (onlooker_open(region) != 0) return 2;
    if (getenv("ONLOOKER_SOCKET")) printf("published: %s\n", onlooker_wait(5000) == 0 ? "yes" : "no, there is no agent");
    key = onlooker_key(table);
    onlooker_key_text(&key, "someone");
    row = onlooker_table_insert(table, &key);

    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < BODIES; i++) {
            uint64_t began = clock_ns();
            bodies[i]();
            times[i][round] = (double)(clock_ns() - began) / (i < 4 ? LOOPS : COMMITS);
        }
        ratios[0][round] = times[1][round] / times[0][round];
        ratios[1][round] = times[2][round] / times[0][round];
    }
    for (i = 0; i < BODIES; i++) medians[i] = median(times[i], ROUNDS);
    printf("plain relaxed atomic add: %.2f ns; CLOCK_BOOTTIME: %.1f ns; CRC of 1016 bytes by tables: %.0f ns\n", medians[0], medians[9],
           medians[8]);
    result("section_counter_ratio", median(ratios[0], ROUNDS), "x_plain_add", 1.05);
    result("section_counter_inc", medians[1], "ns", 20);
    result("region_counter_ratio", median(ratios[1], ROUNDS), "x_plain_add", 1.05);
    result("histogram_record", medians[3], "ns", 60);
    result("crc_1016_bytes", medians[7], "ns", onl_crc_folds ? 200 : 2000);
    result("guarded_commit_5_fields", medians[4], "ns", onl_crc_folds ? 500 : 3000);
    result("guarded_commit_124_fields", medians[5], "ns", onl_crc_folds ? 600 : 3000);
    result("table_add", medians[6], "ns", onl_crc_folds ? 600 : 3000);
    if (onlooker_counter_value(&bench_total) != (uint64_t)ROUNDS * LOOPS) return 2;

    result("switch_window_8_blocks", switch_window_ns(region) / 1000, "us", 100);
    large = onlooker_region("bench_large");
    onlooker_new_counter_array(large, &array, 65000, 1, "i", "many_total", "", "");
    onlooker_new_counter_array(large, &array, 65000, 1, "i", "more_total", "", "");
    if (onlooker_open(large) != 0) return 2;
    result("switch_window_1_MiB", switch_window_ns(large) / 1000, "us", 5000);

    with_us = fork_us();
    onl_lock(&onl.lock);
    large = onl.regions;
    onl.regions = (onlooker_region_t *)0; /* the handlers find nothing to do */
    onl_unlock(&onl.lock);
    without_us = fork_us();
    onl_lock(&onl.lock);
    onl.regions = large;
    onl_unlock(&onl.lock);
    printf("fork and exit of a child: %.0f us, %.0f us without the regions (1 MiB and two small ones)\n", with_us, without_us);
    result("fork_extra", with_us - without_us, "us", 3000);
    return failures != 0;
}
