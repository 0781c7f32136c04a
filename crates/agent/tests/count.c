// SPDX-License-Identifier: Apache-2.0
/* As examples/count.rs, by the C SDK. */
#define ONLOOKER_IMPLEMENTATION
#include "onlooker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static onlooker_counter_t *counter;
static atomic_int stopped;

static void *work(void *count) {
    while (!atomic_load(&stopped)) {
        for (int i = 0; i < 100; i++) {
            onlooker_counter_add(counter, 1);
            ++*(unsigned long long *)count;
        }
        usleep(50);
    }
    return count;
}

int main(void) {
    unsigned long long counts[2] = {0, 0};
    pthread_t workers[2];
    onlooker_status_t status;
    char line[16];
    onlooker_region_t *region = onlooker_region("count");
    onlooker_new_counter(region, &counter, "count_total", "", "");
    if (onlooker_open(region) != 0) return 1;
    for (int tries = 0;; tries++) {
        onlooker_status(&status);
        if (status.published == 1) break;
        if (tries == 400) return fprintf(stderr, "not published: %s\n", status.error), 1;
        usleep(50 * 1000);
    }
    puts("published");
    fflush(stdout);
    for (int i = 0; i < 2; i++) pthread_create(&workers[i], (pthread_attr_t *)0, work, &counts[i]);
    if (!fgets(line, sizeof line, stdin)) return 1;
    atomic_store(&stopped, 1);
    for (int i = 0; i < 2; i++) pthread_join(workers[i], (void **)0);
    onlooker_status(&status);
    printf("%llu %llu %llu\n", counts[0] + counts[1], (unsigned long long)status.switches, (unsigned long long)status.connections);
    fflush(stdout);
    (void)!fgets(line, sizeof line, stdin);
    return 0;
}
