// SPDX-License-Identifier: Apache-2.0
/* Publishes, every so many milliseconds, values that can be judged by themselves: a number that counts up, the boot clock at that instant, and a check that
 * follows from the number (52 bits, exact as a double); beside them a region of plain counters. Until it is killed. Usage: beacon [EVERY_MS [COUNTERS]] */
#define ONLOOKER_IMPLEMENTATION
#include "onlooker.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MAX_COUNTERS = 120 };

int main(int argc, char **argv) {
    int every_ms = argc > 1 ? atoi(argv[1]) : 5;
    int counters = argc > 2 ? atoi(argv[2]) : 20;
    if (every_ms < 1 || counters < 1 || counters > MAX_COUNTERS) return 2;
    onlooker_region_t *region = onlooker_region("beacon");
    onlooker_guarded_t *group = onlooker_new_guarded(region);
    onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, "beacon_number", "", "Commits so far.");
    onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, "beacon_boottime_ns", "", "CLOCK_BOOTTIME just before the commit.");
    onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, "beacon_check", "", "Follows from the number.");
    if (onlooker_open(region) != 0) return 1;
    onlooker_region_t *plain = onlooker_region("beacon_counters");
    onlooker_counter_t *counter[MAX_COUNTERS];
    for (int i = 0; i < counters; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        onlooker_new_counter(plain, &counter[i], "beacon_events_total", "events", "Ticks, times the number of the counter.", "counter", number);
    }
    if (onlooker_open(plain) != 0) return 1;
    for (uint64_t number = 1;; number++) {
        struct timespec now;
        clock_gettime(CLOCK_BOOTTIME, &now);
        uint64_t values[3] = {number, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, number * 0x9e3779b97f4a7c15u >> 12};
        onlooker_guarded_commit_values(group, values, sizeof values);
        for (int i = 0; i < counters; i++) onlooker_counter_add(counter[i], (uint64_t)i);
        usleep((useconds_t)every_ms * 1000);
    }
}
