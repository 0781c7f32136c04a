// SPDX-License-Identifier: Apache-2.0
/* A second file of the section test, without the implementation; also what run-tests looks at the machine code of. */
#include "../onlooker.h"

ONLOOKER_COUNTER(more_total, "things", "Things");
ONLOOKER_STATIC_COUNTER(local_total, "things", "Things", "where", "more");
ONLOOKER_STATIC_COUNTER_ARRAY(jobs_total, 4, "worker", "jobs", "Jobs");

#ifdef __cplusplus
extern "C++" {
#endif
void count_more(unsigned n);
uint64_t count_local(void);
void one_more(void);
#ifdef __cplusplus
}
#endif

void count_more(unsigned n) {
    for (; n; n--) {
        onlooker_counter_inc(&more_total);
        onlooker_counter_inc(&local_total);
        onlooker_counter_inc(&jobs_total[n % 4]);
    }
}

uint64_t count_local(void) { return onlooker_counter_value(&local_total); }

void one_more(void) { onlooker_counter_inc(&more_total); }
