// SPDX-License-Identifier: Apache-2.0
/* A shared library with section counters: it has an SDK of its own, and its own region. */
#define ONLOOKER_IMPLEMENTATION
#include "../onlooker.h"

ONLOOKER_COUNTER(library_total, "things", "Things");

#ifdef __cplusplus
extern "C" {
#endif
unsigned long library_count(void);
#ifdef __cplusplus
}
#endif

unsigned long library_count(void) {
    onlooker_counter_inc(&library_total);
    return (unsigned long)onlooker_counter_value(&library_total);
}
