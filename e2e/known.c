// SPDX-License-Identifier: Apache-2.0
/* Publishes known values in every way that the C SDK has, says so, and sleeps: what a reader elsewhere must find. */
#define ONLOOKER_IMPLEMENTATION
#include "onlooker.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

ONLOOKER_COUNTER(known_requests_total, "requests", "Requests served.", "shard", "3");
ONLOOKER_GAUGE_F64(known_ratio, "ratio", "A share.");
ONLOOKER_COUNTER_ARRAY(known_jobs_total, 3, "worker", "jobs", "Jobs done.");

static void fill_table(onlooker_table_t *table, int bytes, int state) {
    struct in_addr address;
    inet_pton(AF_INET, "192.0.2.7", &address);
    onlooker_key_t key = onlooker_key(table);
    onlooker_key_text(&key, "gr\xc3\xbc\xc3\x9f");
    onlooker_key_ipv4(&key, &address);
    onlooker_row_t row = onlooker_table_insert(table, &key);
    onlooker_table_set_u64(table, row, bytes, 4096);
    onlooker_table_set_text(table, row, state, "established");

    key = onlooker_key(table);
    onlooker_key_text(&key, "gone");
    onlooker_key_ipv4(&key, &address);
    onlooker_table_remove(table, onlooker_table_insert(table, &key));
}

int main(void) {
    onlooker_counter_add(&known_requests_total, 41);
    onlooker_counter_inc(&known_requests_total);
    onlooker_gauge_f64_set(&known_ratio, 0.25);
    for (int worker = 0; worker < 3; worker++) onlooker_counter_add(&known_jobs_total[worker], 10u * (unsigned)worker);

    onlooker_region_t *region = onlooker_region("known");
    onlooker_region_instance(region, "one");
    onlooker_region_label(region, "site", "north");
    onlooker_counter_t *errors;
    onlooker_updown_t *in_flight;
    onlooker_histogram_t latency;
    onlooker_new_counter(region, &errors, "known_errors_total", "errors", "Errors.", "kind", "timeout");
    onlooker_new_updown(region, &in_flight, "known_in_flight", "requests", "Requests in flight.");
    onlooker_new_histogram(region, &latency, 2, 40, "known_latency_seconds", "seconds", "Latency.");
    onlooker_scale(region, 1e-9);

    onlooker_guarded_t *group = onlooker_new_guarded(region);
    int hits = onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "known_cache_hits_total", "hits", "Hits.");
    int size = onlooker_guarded_field(group, ONLOOKER_I64, ONLOOKER_METRIC_GAUGE, "known_cache_bytes", "bytes", "Size.");
    int version = onlooker_guarded_text(group, 16, "known_version_info", "Version.");

    onlooker_table_t *table = onlooker_new_table(region, 8);
    onlooker_table_key_text(table, "tenant", 16);
    onlooker_table_key_address(table, "peer");
    int bytes = onlooker_table_field(table, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "known_tenant_bytes_total", "bytes", "Bytes.");
    int state = onlooker_table_text(table, 16, "known_tenant_state_info", "State.");
    if (onlooker_open(region) != 0) return 1;

    onlooker_counter_add(errors, 7);
    onlooker_updown_add(in_flight, 5);
    onlooker_updown_add(in_flight, -8);
    for (uint64_t ns = 1; ns <= 1000000000; ns *= 10) onlooker_histogram_record(&latency, ns);
    onlooker_guarded_begin(group);
    onlooker_guarded_set_u64(group, hits, 18446744073709551615u);
    onlooker_guarded_set_i64(group, size, -4096);
    onlooker_guarded_set_text(group, version, "v1.2.3");
    onlooker_guarded_commit(group);
    fill_table(table, bytes, state);

    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
