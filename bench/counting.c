// SPDX-License-Identifier: Apache-2.0
/* Counts in two threads until SIGTERM, keeping a tally of its own beside the published counters; then prints the tally and sleeps until it is killed.
 * What a reader finds then must be the tally, whatever became of agents meanwhile. */
#define ONLOOKER_IMPLEMENTATION
#include "onlooker.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 2, ADDS_PER_PAUSE = 100, PAUSE_US = 1000 };

ONLOOKER_COUNTER(counting_global_total, "events", "Events, counted in a variable.");

static onlooker_counter_t *in_region;
static volatile sig_atomic_t stopped;
static uint64_t tally[THREADS];

static void stop(int signal_number) {
    (void)signal_number;
    stopped = 1;
}

static void *count(void *argument) {
    uint64_t *mine = argument;
    while (!stopped) {
        for (int i = 0; i < ADDS_PER_PAUSE; i++) {
            onlooker_counter_inc(&counting_global_total);
            onlooker_counter_inc(in_region);
            ++*mine;
        }
        usleep(PAUSE_US);
    }
    return NULL;
}

int main(void) {
    onlooker_region_t *region = onlooker_region("counting_region");
    onlooker_new_counter(region, &in_region, "counting_region_total", "events", "Events, counted in a region.");
    if (onlooker_open(region) != 0) return 1;
    signal(SIGTERM, stop);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, count, &tally[i]) != 0) return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%" PRIu64 "\n", tally[0] + tally[1]);
    fflush(stdout);
    for (;;) pause();
}
