// SPDX-License-Identifier: Apache-2.0
/* Registers as many regions as told, says so, and sleeps until it is killed: what an agent has to remember for programs that run. */
#define ONLOOKER_IMPLEMENTATION
#include "onlooker.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 40;
    for (int i = 0; i < wanted; i++) {
        char instance[16];
        onlooker_counter_t *counter;
        onlooker_region_t *region = onlooker_region("bench_region");
        snprintf(instance, sizeof instance, "%d", i);
        onlooker_region_instance(region, instance);
        onlooker_new_counter(region, &counter, "bench_events_total", "events", "Events.");
        if (onlooker_open(region) != 0) return 1;
        onlooker_counter_add(counter, (uint64_t)i);
    }
    for (int tries = 0; tries < 200; tries++) {
        onlooker_status_t status;
        onlooker_status(&status);
        if ((int)status.published == wanted) {
            puts("published");
            fflush(stdout);
            for (;;) pause();
        }
        usleep(50 * 1000);
    }
    return 1;
}
