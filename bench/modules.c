// SPDX-License-Identifier: Apache-2.0
/* Programs as the study of acquisition systems has them: each a region of some metrics that all change at once. Says so once all are published, and goes on until
 * it is killed. Usage: modules PROGRAMS METRICS EVERY_MS */
#define ONLOOKER_IMPLEMENTATION
#include "onlooker.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_PROGRAMS = 1024, MAX_METRICS = 15 };

int main(int argc, char **argv) {
    static onlooker_guarded_t *group[MAX_PROGRAMS];
    int programs = argc > 3 ? atoi(argv[1]) : 0, metrics = argc > 3 ? atoi(argv[2]) : 0, every_ms = argc > 3 ? atoi(argv[3]) : 0;
    if (programs < 1 || programs > MAX_PROGRAMS || metrics < 1 || metrics > MAX_METRICS || every_ms < 1) return 2;
    for (int i = 0; i < programs; i++) {
        char name[24];
        onlooker_region_t *region = onlooker_region("module");
        snprintf(name, sizeof name, "%d", i);
        onlooker_region_instance(region, name);
        group[i] = onlooker_new_guarded(region);
        for (int m = 0; m < metrics; m++) {
            snprintf(name, sizeof name, "module_index_%d", m);
            onlooker_guarded_field(group[i], ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, name, "", "An index of a module.");
        }
        if (onlooker_open(region) != 0) return 1;
    }
    for (uint64_t number = 1, said = 0;; number++) {
        for (int i = 0; i < programs; i++) {
            uint64_t values[MAX_METRICS];
            for (int m = 0; m < metrics; m++) values[m] = (number + (uint64_t)i) * (uint64_t)(m + 1) % 1000;
            onlooker_guarded_commit_values(group[i], values, (size_t)metrics * sizeof values[0]);
        }
        onlooker_status_t status;
        if (!said) {
            onlooker_status(&status);
            if ((int)status.published == programs) {
                said = 1;
                puts("published");
                fflush(stdout);
            } else if (number * (uint64_t)every_ms > 10000) {
                fprintf(stderr, "modules: %d of %d are published: %s\n", (int)status.published, programs, status.error);
                return 1;
            }
        }
        usleep((useconds_t)every_ms * 1000);
    }
}
