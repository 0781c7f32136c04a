// SPDX-License-Identifier: Apache-2.0
/* Mistakes that would count into nothing. Each CASE must not compile, whatever warnings are on; without a CASE it must. */
#include "../onlooker.h"

#ifndef CASE
#define CASE 0
#endif

onlooker_counter_t value;
onlooker_counter_t *counter, *counters[2];
onlooker_gauge_t *gauge;
onlooker_histogram_t histogram, *histogram_pointer;
onlooker_counter_array_t array, *array_pointer;

void mistake(onlooker_region_t *region, void *context);
void mistake(onlooker_region_t *region, void *context) {
    int i = 0;
#if CASE == 0
    onlooker_new_counter(region, &counter, "a", "", "");
    onlooker_new_counter(region, counters, "b", "", "", "label", "value");
    onlooker_new_counter(region, &counters[i++], "c", "", "");
    onlooker_new_gauge(region, &gauge, "d", "", "");
    onlooker_new_histogram(region, &histogram, 3, 36, "e", "", "");
    onlooker_new_counter_array(region, &array, 2, ONLOOKER_PACKED, "i", "f", "", "");
    onlooker_counter_inc(counter);
    onlooker_counter_inc(&value);
    onlooker_counter_add(counters[--i], 2);
    onlooker_counter_inc((onlooker_counter_t *)context);
    onlooker_gauge_set(gauge, -1);
    onlooker_histogram_record(&histogram, 1);
    onlooker_counter_inc(onlooker_counter_at(&array, 1));
#elif CASE == 1 /* the value in place of a pointer: it would stay 0 */
    onlooker_new_counter(region, &value, "a", "", "");
#elif CASE == 2 /* the pointer itself, which points nowhere yet */
    onlooker_new_counter(region, counter, "a", "", "");
#elif CASE == 3 /* another kind */
    onlooker_new_counter(region, &gauge, "a", "", "");
#elif CASE == 4 /* a pointer where the histogram itself is wanted */
    onlooker_new_histogram(region, &histogram_pointer, 3, 36, "a", "", "");
#elif CASE == 5
    onlooker_new_counter_array(region, &array_pointer, 2, ONLOOKER_PACKED, "i", "a", "", "");
#elif CASE == 6 /* this would count in the pointer */
    onlooker_counter_inc(&counter);
#elif CASE == 7
    onlooker_gauge_set(counter, 1);
#elif CASE == 8
    onlooker_histogram_record(&histogram_pointer, 1);
#elif CASE == 9
    onlooker_counter_inc(onlooker_counter_at(&array_pointer, 1));
#endif
    (void)region, (void)context, (void)i;
}
