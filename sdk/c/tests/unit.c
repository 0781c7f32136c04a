// SPDX-License-Identifier: Apache-2.0
/* What needs no agent: CRC, JSON, layout and schema, guarded blocks, tables, histograms. */
#define ONLOOKER_IMPLEMENTATION
#include "../onlooker.h"

#include "check.h"
#include <locale.h>
#include <sched.h>

/* ------------------------------------------------------------------------------------------------------------ CRC */

static uint32_t plain_crc(const unsigned char *p, size_t n) {
    uint32_t crc = 0xFFFFFFFFu;
    int bit;
    for (; n; n--, p++)
        for (crc ^= *p, bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
    return ~crc;
}

#ifdef __x86_64__
/* x^degree mod P with unreflected bits; then the fold constant as the header's comment derives it. */
static uint64_t fold_constant(unsigned degree) {
    uint64_t r = 1, reflected = 0;
    unsigned i;
    for (i = 0; i < degree; i++) {
        r <<= 1;
        if (r >> 32) r ^= 0x104C11DB7u;
    }
    for (i = 0; i < 32; i++)
        if (r >> i & 1) reflected |= (uint64_t)1 << (31 - i);
    return reflected << 1;
}
#endif

static void test_crc(void) {
    static unsigned char bytes[2048];
    size_t i, n;
    uint32_t seed = 1;
    int folds = onl_crc_folds;
    CHECK_EQUAL(onl_crc32("123456789", 9), 0xCBF43926u);
    for (i = 0; i < sizeof bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(seed >> 24);
    }
    for (n = 0; n < 1100; n++) {
        uint32_t right = plain_crc(bytes + n % 17, n);
        onl_crc_folds = folds;
        if (onl_crc32(bytes + n % 17, n) != right) CHECK_EQUAL(n, 99999);
        onl_crc_folds = 0;
        if (onl_crc32(bytes + n % 17, n) != right) CHECK_EQUAL(n, 99998);
    }
    onl_crc_folds = folds;
    CHECK_EQUAL(onl_crc32(bytes, 1016), plain_crc(bytes, 1016));
#ifdef __x86_64__
    CHECK_EQUAL(fold_constant(512 + 32), ONL_FOLD_512_LOW);
    CHECK_EQUAL(fold_constant(512 - 32), ONL_FOLD_512_HIGH);
    CHECK_EQUAL(fold_constant(128 + 32), ONL_FOLD_128_LOW);
    CHECK_EQUAL(fold_constant(128 - 32), ONL_FOLD_128_HIGH);
#endif
}

/* ----------------------------------------------------------------------------------------------------------- JSON */

static int text_is(onl_text_t *t, const char *expected) {
    int same = !t->bad && t->n == strlen(expected) && memcmp(t->bytes, expected, t->n) == 0;
    if (!same) fprintf(stderr, "got  %.*s\nwant %s\n", (int)t->n, t->bytes, expected);
    t->n = 0;
    return same;
}

static void test_json_writing(void) {
    static char block[1000];
    onl_text_t t;
    int i;
    memset(&t, 0, sizeof t);
    onl_put_string(&t, "a\"b\\c\n\x01\x7f \xc3\xa4 \xf0\x9f\x98\x80");
    CHECK(text_is(&t, "\"a\\\"b\\\\c\\u000a\\u0001\x7f \xc3\xa4 \xf0\x9f\x98\x80\""));
    onl_put_string(&t, "\xff \xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xc3");
    CHECK(text_is(&t, "\"? ?? ??? ???? ?\""));
    onl_put_double(&t, 1e-9);
    onl_put(&t, " ", 1);
    onl_put_double(&t, 0.1);
    onl_put(&t, " ", 1);
    onl_put_double(&t, 1024);
    onl_put(&t, " ", 1);
    onl_put_double(&t, -1.0 / 3);
    CHECK(text_is(&t, "1e-09 1e-01 1.024e+03 -3.333333333333333e-01"));
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") || setlocale(LC_NUMERIC, "fr_FR.UTF-8")) {
        onl_put_double(&t, 1024);
        CHECK(text_is(&t, "1.024e+03"));
        (void)setlocale(LC_NUMERIC, "C");
    }
    memset(block, 'x', sizeof block);
    for (i = 0; i < 300; i++) onl_put(&t, block, sizeof block);
    CHECK(t.bad);
    free(t.bytes);
}

static const char *get(const char *json, const char *key, size_t *n) {
    const char *end, *v = onl_json_get(json, json + strlen(json), key, &end);
    *n = v ? (size_t)(end - v) : 0;
    return v;
}

static void test_json_reading(void) {
    const char *good = " {\"a\" : [1,{\"b\":\"}\"}] , \"b\":\"x\\\"y\\u0041\\n\",\"c\":{\"d\":18446744073709551615},\"t\":true}";
    const char *end = good + strlen(good), *v;
    char text[16], deep[256];
    static const char *const bad[] = {"", "{", "{\"b\"", "{\"b\":", "{\"a\":1 \"b\":2}", "[\"b\",1]", "{\"a\":}",
                                      "{\"a\":\"x\\", "{\"a\":[1,2", "{b:1}", "nul", "{\"a\":,\"b\":1}", "{,\"b\":1}"};
    size_t n, i;
    uint64_t number = 7;
    v = get(good, "a", &n);
    CHECK(v && n == 13);
    v = get(good, "c", &n);
    CHECK(v && onl_json_u64(v, v + n, "d", &number));
    CHECK_EQUAL(number, UINT64_MAX);
    CHECK(!get(good, "d", &n));
    CHECK(onl_json_bool(good, end, "t") == 1 && onl_json_bool(good, end, "a") == -1 && onl_json_bool(good, end, "z") == -1);
    onl_json_text(good, end, "b", text, sizeof text);
    CHECK(strcmp(text, "x\"y? ") == 0);
    onl_json_text(good, end, "b", text, 3);
    CHECK(strcmp(text, "x\"") == 0);
    onl_json_text(good, end, "t", text, sizeof text);
    CHECK(text[0] == 0);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!get(bad[i], "b", &n));
    v = "{\"n\":18446744073709551616,\"m\":-1,\"k\":1.5}";
    CHECK(!onl_json_u64(v, v + strlen(v), "n", &number) && !onl_json_u64(v, v + strlen(v), "m", &number) &&
          !onl_json_u64(v, v + strlen(v), "k", &number));
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    CHECK(!onl_json_get(deep, deep + sizeof deep, "b", &end));
    /* every prefix of a good text, and every single byte changed: only in bounds, which the sanitizers see */
    for (i = 0; i < strlen(good); i++) {
        char *copy = (char *)malloc(i ? i : 1);
        memcpy(copy, good, i);
        (void)onl_json_get(copy, copy + i, "t", &end);
        onl_json_text(copy, copy + i, "b", text, sizeof text);
        free(copy);
    }
}

/* ------------------------------------------------------------------------------------------------- layout, schema */

/* A guarded block as a reader judges it (block.md); 0: accepted. */
static int refused(const uint64_t *block, uint64_t identity) {
    if ((uint32_t)block[0] == 0) return 1;
    if (block[0] & 1) return 2;
    if (block[0] >> 32 || (uint32_t)block[0] != (uint32_t)block[127]) return 3;
    if (plain_crc((const unsigned char *)block, 1016) != block[127] >> 32) return 4;
    return block[2] != identity ? 5 : 0;
}

static const uint64_t *block_of(const onlooker_region_t *region, uint32_t block) { return region->base + (size_t)block * 128; }

static void test_layout(void) {
    static const char *const names[] = {"eu", "us", "as"};
    static const char expected[] =
        "{\"op\":\"create\",\"name\":\"shop\",\"instance\":\"a\\\"b\",\"labels\":{\"shard\":\"3\"},\"schema\":{\"name\":\"shop_v1\","
        "\"groups\":["
        "{\"kind\":\"plain\",\"blocks\":4,\"fields\":["
        "{\"name\":\"requests_total\",\"metric\":\"counter\",\"type\":\"u64\",\"unit\":\"requests\",\"help\":\"Requests served\","
        "\"labels\":{\"method\":\"get\"}},"
        "{\"name\":\"requests_open\",\"metric\":\"gauge\",\"type\":\"i64\",\"slot\":1,\"unit\":\"requests\"},"
        "{\"name\":\"workers\",\"metric\":\"gauge\",\"type\":\"i64\",\"slot\":2,\"help\":\"Workers\",\"resolution_ns\":1000000},"
        "{\"name\":\"load\",\"metric\":\"gauge\",\"type\":\"f64\",\"slot\":3,\"unit\":\"ratio\",\"help\":\"Load\"},"
        "{\"name\":\"jobs_total\",\"metric\":\"counter\",\"type\":\"u64\",\"slot\":4,\"unit\":\"jobs\",\"help\":\"Jobs\","
        "\"array\":{\"label\":\"worker\",\"count\":20,\"stride\":8}},"
        "{\"name\":\"orders_total\",\"metric\":\"counter\",\"type\":\"u64\",\"slot\":164,\"unit\":\"orders\",\"help\":\"Orders\","
        "\"array\":{\"label\":\"place\",\"count\":3,\"stride\":1,\"values\":[\"eu\",\"us\",\"as\"]}},"
        "{\"name\":\"latency_seconds\",\"metric\":\"histogram\",\"type\":\"u64\",\"slot\":167,\"unit\":\"seconds\",\"scale\":1e-09,"
        "\"help\":\"Latency\",\"histogram\":{\"grouping_power\":3,\"max_power\":30}}]},"
        "{\"kind\":\"guarded\",\"blocks\":1,\"fields\":["
        "{\"name\":\"queue_length\",\"metric\":\"gauge\",\"type\":\"i64\",\"help\":\"Length\"},"
        "{\"name\":\"queue_name\",\"metric\":\"info\",\"type\":\"text\",\"slot\":1,\"bytes\":16,\"help\":\"Name\"},"
        "{\"name\":\"queue_age\",\"metric\":\"gauge\",\"type\":\"f64\",\"slot\":3,\"unit\":\"seconds\",\"help\":\"Age\"}]},"
        "{\"kind\":\"table\",\"blocks\":1,\"key\":[{\"name\":\"client\",\"type\":\"text\",\"bytes\":16},"
        "{\"name\":\"address\",\"type\":\"address\"},{\"name\":\"port\",\"type\":\"u64\"}],\"fields\":["
        "{\"name\":\"client_bytes_total\",\"metric\":\"counter\",\"type\":\"u64\",\"unit\":\"bytes\",\"help\":\"Bytes\"},"
        "{\"name\":\"client_rate\",\"metric\":\"gauge\",\"type\":\"f64\",\"slot\":1}]}]}}";
    onlooker_region_t *region = onlooker_region("shop");
    onlooker_counter_t *requests;
    onlooker_updown_t *open_requests;
    onlooker_gauge_t *workers;
    onlooker_gauge_f64_t *load;
    onlooker_counter_array_t per_thread, per_place;
    onlooker_histogram_t latency;
    onlooker_guarded_t *queue;
    onlooker_table_t *clients;
    onlooker_key_t key;
    uint32_t i;
    double half = 0.5;
    uint64_t half_bits;
    onlooker_region_label(region, "shard", "3");
    onlooker_region_instance(region, "a\"b");
    onlooker_region_class(region, "shop_v1");
    onlooker_new_counter(region, &requests, "requests_total", "requests", "Requests served", "method", "get");
    CHECK((uint64_t *)requests == onlooker_sink);
    onlooker_counter_inc(requests); /* into the void */
    onlooker_new_updown(region, &open_requests, "requests_open", "requests", "");
    onlooker_new_gauge(region, &workers, "workers", "", "Workers");
    onlooker_resolution_ns(region, 1000000);
    onlooker_new_gauge_f64(region, &load, "load", "ratio", "Load");
    onlooker_new_counter_array(region, &per_thread, 20, ONLOOKER_SPREAD, "worker", "jobs_total", "jobs", "Jobs");
    CHECK(onlooker_counter_at(&per_thread, 0) == (onlooker_counter_t *)onlooker_sink);
    onlooker_new_counter_array(region, &per_place, 3, ONLOOKER_PACKED, "place", "orders_total", "orders", "Orders");
    onlooker_values(region, names);
    onlooker_new_histogram(region, &latency, 3, 30, "latency_seconds", "seconds", "Latency");
    onlooker_scale(region, 1e-9);
    onlooker_histogram_record(&latency, UINT64_MAX); /* into the void */
    queue = onlooker_new_guarded(region);
    CHECK_EQUAL(onlooker_guarded_field(queue, ONLOOKER_I64, ONLOOKER_METRIC_GAUGE, "queue_length", "", "Length"), 0);
    CHECK_EQUAL(onlooker_guarded_text(queue, 16, "queue_name", "Name"), 1);
    CHECK_EQUAL(onlooker_guarded_field(queue, ONLOOKER_F64, ONLOOKER_METRIC_GAUGE, "queue_age", "seconds", "Age"), 3);
    clients = onlooker_new_table(region, 10);
    onlooker_table_key_text(clients, "client", 16);
    onlooker_table_key_address(clients, "address");
    onlooker_table_key_u64(clients, "port");
    CHECK_EQUAL(onlooker_table_field(clients, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "client_bytes_total", "bytes", "Bytes"), 0);
    CHECK_EQUAL(onlooker_table_field(clients, ONLOOKER_F64, ONLOOKER_METRIC_GAUGE, "client_rate", "", ""), 1);
    key = onlooker_key(clients);
    onlooker_key_text(&key, "early");
    CHECK_EQUAL(onlooker_table_insert(clients, &key).generation, 0);
    onlooker_guarded_begin(queue);
    onlooker_guarded_set_i64(queue, 0, -5);
    onlooker_guarded_set_text(queue, 1, "orders, and \xc3\xa4\xc3\xa4\xc3\xa4");
    onlooker_guarded_set_f64(queue, 3, half);
    onlooker_guarded_set_u64(queue, 4, 1); /* not a slot of the group */
    onlooker_guarded_set_u64(queue, -1, 1);
    onlooker_guarded_commit(queue); /* comes out when the region opens */
    CHECK_EQUAL(onlooker_open(region), 0);
    CHECK_EQUAL(onlooker_open(region), 0);
    CHECK_EQUAL(region->request_bytes, strlen(expected));
    CHECK(region->request_bytes == strlen(expected) && memcmp(region->request, expected, strlen(expected)) == 0);
    if (memcmp(region->request, expected, strlen(expected)) != 0) fprintf(stderr, "%.*s\n", (int)region->request_bytes, region->request);
    CHECK_EQUAL(region->blocks, 6);

    onlooker_counter_add(requests, 3);
    onlooker_updown_add(open_requests, -2);
    onlooker_gauge_set(workers, 8);
    onlooker_gauge_f64_set(load, half);
    memcpy(&half_bits, &half, 8);
    CHECK_EQUAL(block_of(region, 0)[0], 0);
    CHECK_EQUAL(block_of(region, 0)[1], 3);
    CHECK_EQUAL(block_of(region, 0)[2], (uint64_t)-2);
    CHECK_EQUAL(block_of(region, 0)[3], 8);
    CHECK_EQUAL(block_of(region, 0)[4], half_bits);
    CHECK_EQUAL(onlooker_counter_value(requests), 3);
    CHECK(onlooker_updown_value(open_requests) == -2 && onlooker_gauge_value(workers) == 8 && onlooker_gauge_f64_value(load) == half);
    for (i = 0; i < 22; i++) onlooker_counter_add(onlooker_counter_at(&per_thread, i), i + 1);
    CHECK_EQUAL(block_of(region, 0)[1 + 4], 1);
    CHECK_EQUAL(block_of(region, 0)[1 + 4 + 15 * 8], 16); /* slot 124 */
    CHECK_EQUAL(block_of(region, 1)[1 + 4 + 16 * 8 - 127], 17);
    onlooker_counter_inc(onlooker_counter_at(&per_place, 2));
    CHECK_EQUAL(block_of(region, 1)[1 + 166 - 127], 1);
    onlooker_histogram_record(&latency, 100);
    onlooker_histogram_record(&latency, UINT64_MAX - 99);
    CHECK_EQUAL(*latency.sum, 0);
    i = 167 + onlooker_histogram_index(3, 30, 100);
    CHECK_EQUAL(block_of(region, i / 127)[1 + i % 127], 1);
    i = 167 + onlooker_histogram_buckets(3, 30) - 1;
    CHECK_EQUAL(block_of(region, i / 127)[1 + i % 127], 1);

    CHECK_EQUAL(refused(block_of(region, 4), 0), 0);
    CHECK_EQUAL((int64_t)block_of(region, 4)[3], -5);
    CHECK(memcmp(block_of(region, 4) + 4, "orders, and \xc3\xa4\xc3\xa4", 16) == 0);
    CHECK_EQUAL(block_of(region, 4)[6], half_bits);
    CHECK_EQUAL(block_of(region, 4)[7], 0);
    CHECK_EQUAL(refused(block_of(region, 5), 0), 0); /* tables can be read from the beginning */
}

static void test_faulty_regions(void) {
    onlooker_status_t status;
    onlooker_region_t *region;
    onlooker_counter_t *counter;
    onlooker_histogram_t histogram;
    onlooker_counter_array_t array;
    onlooker_guarded_t *group;
    onlooker_table_t *table;
    uint64_t values[200];
    int i;
    memset(values, 1, sizeof values);

    region = onlooker_region("9lives");
    onlooker_new_counter(region, &counter, "lives_total", "", "");
    CHECK_EQUAL(onlooker_open(region), -1);
    onlooker_counter_add(counter, 9);
    CHECK((uint64_t *)counter != onlooker_sink && onlooker_counter_value(counter) == 9);
    onlooker_status(&status);
    CHECK(strstr(status.error, "9lives") && strstr(status.error, "not a region name"));
    CHECK_EQUAL(onlooker_open(region), -1);

    region = onlooker_region("a");
    CHECK_EQUAL(onlooker_open(region), -1); /* empty */
    onlooker_new_counter(region, &counter, "late_total", "", "");
    onlooker_counter_inc(counter);
    CHECK((uint64_t *)counter == onlooker_sink);

    region = onlooker_region("b");
    onlooker_new_counter(region, &counter, "x_total", "", "", "__reserved", "1");
    CHECK_EQUAL(onlooker_open(region), -1);
    region = onlooker_region("c");
    onlooker_new_counter(region, &counter, "x_total", "", "", "odd");
    CHECK_EQUAL(onlooker_open(region), -1);
    region = onlooker_region("d");
    onlooker_new_histogram(region, &histogram, 12, 13, "x", "", "");
    onlooker_histogram_record(&histogram, UINT64_MAX);
    CHECK_EQUAL(onlooker_open(region), -1);
    onlooker_histogram_record(&histogram, UINT64_MAX);
    region = onlooker_region("e");
    onlooker_new_histogram(region, &histogram, 5, 5, "x", "", "");
    CHECK_EQUAL(onlooker_open(region), -1);
    region = onlooker_region("f");
    onlooker_new_counter_array(region, &array, 100000, 1, "i", "x_total", "", "");
    CHECK_EQUAL(onlooker_open(region), -1);
    onlooker_counter_inc(onlooker_counter_at(&array, 5));
    region = onlooker_region("g");
    onlooker_new_counter_array(region, &array, 3, 1, "not-a-label", "x_total", "", "");
    CHECK_EQUAL(onlooker_open(region), -1);

    region = onlooker_region("h");
    group = onlooker_new_guarded(region);
    for (i = 0; i < 125; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%d", i);
        CHECK_EQUAL(onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, name, "", ""), i < 124 ? i : -1);
    }
    CHECK_EQUAL(onlooker_open(region), -1);
    onlooker_guarded_commit_values(group, values, sizeof values);
    CHECK_EQUAL(refused(block_of(region, 0), 0), 0);
    CHECK_EQUAL(block_of(region, 0)[126], 0x0101010101010101u);

    region = onlooker_region("i");
    group = onlooker_new_guarded(region);
    CHECK_EQUAL(onlooker_guarded_field(group, ONLOOKER_TEXT, ONLOOKER_METRIC_INFO, "t", "", ""), -1);
    CHECK_EQUAL(onlooker_guarded_text(group, 7, "t", ""), -1);
    CHECK_EQUAL(onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_HISTOGRAM, "t", "", ""), -1);
    CHECK_EQUAL(onlooker_open(region), -1);

    region = onlooker_region("j");
    table = onlooker_new_table(region, 5);
    onlooker_table_key_text(table, "k", 72);
    onlooker_table_field(table, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "x_total", "", "");
    CHECK_EQUAL(onlooker_open(region), -1);
    CHECK_EQUAL(onlooker_table_refused(table), 0);
    region = onlooker_region("k");
    table = onlooker_new_table(region, 4000000000u);
    onlooker_table_key_u64(table, "k");
    onlooker_table_field(table, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "x_total", "", "");
    CHECK_EQUAL(onlooker_open(region), -1);
    onlooker_status(&status);
    CHECK(status.refused >= 10 && status.published == 0);
    onlooker_scale(region, 0.0 / 1.0);
}

/* ------------------------------------------------------------------------------------------------- guarded, tables */

static void test_guarded(void) {
    struct {
        uint64_t length;
        int64_t change;
        double age;
    } values = {7, -3, 1.5};
    onlooker_region_t *region = onlooker_region("guarded_test");
    onlooker_guarded_t *group = onlooker_new_guarded(region);
    const uint64_t *block;
    uint64_t before_ns, bits;
    onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, "length", "", "");
    onlooker_guarded_field(group, ONLOOKER_I64, ONLOOKER_METRIC_GAUGE, "change", "", "");
    onlooker_guarded_field(group, ONLOOKER_F64, ONLOOKER_METRIC_GAUGE, "age", "", "");
    CHECK_EQUAL(onlooker_open(region), 0);
    block = block_of(region, 0);
    CHECK_EQUAL(refused(block, 0), 1); /* unwritten until the first commit */
    before_ns = onl_now_ns();
    onlooker_guarded_commit_values(group, &values, sizeof values);
    CHECK_EQUAL(refused(block, 0), 0);
    CHECK_EQUAL((uint32_t)block[0], 2);
    CHECK(block[1] >= before_ns && block[1] <= onl_now_ns());
    memcpy(&bits, &values.age, 8);
    CHECK(block[3] == 7 && block[4] == (uint64_t)-3 && block[5] == bits && block[6] == 0);
    onlooker_guarded_begin(group);
    onlooker_guarded_set_u64(group, 0, 8);
    CHECK_EQUAL(block[3], 7); /* not before the commit */
    onlooker_guarded_commit(group);
    CHECK(block[3] == 8 && block[4] == (uint64_t)-3 && (uint32_t)block[0] == 4);
    group->group.images[0] = 0xFFFFFFFEu; /* block.md: the version skips 0 */
    onlooker_guarded_commit_values(group, &values, 8);
    CHECK_EQUAL((uint32_t)block[0], 2);
    CHECK_EQUAL(refused(block, 0), 0);
}

static onlooker_row_t row_of(onlooker_table_t *table, const char *name, int insert) {
    onlooker_key_t key = onlooker_key(table);
    onlooker_key_text(&key, name);
    return insert ? onlooker_table_insert(table, &key) : onlooker_table_find(table, &key);
}

static void test_tables(void) {
    onlooker_region_t *region = onlooker_region("table_test");
    onlooker_counter_t *counter;
    onlooker_table_t *table = onlooker_new_table(region, 50);
    onlooker_row_t a, b, row;
    onlooker_key_t key;
    uint64_t values[3] = {5, 6, 0}, version;
    unsigned i, generation;
    const uint64_t *words;
    char name[40];
    unsigned char four[4] = {10, 1, 2, 3};
    onlooker_new_counter(region, &counter, "x_total", "", "");
    onlooker_table_key_text(table, "name", 32);
    CHECK_EQUAL(onlooker_table_field(table, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "bytes_total", "bytes", ""), 0);
    CHECK_EQUAL(onlooker_table_field(table, ONLOOKER_I64, ONLOOKER_METRIC_GAUGE, "depth", "", ""), 1);
    CHECK_EQUAL(onlooker_table_text(table, 8, "mood", ""), 2);
    CHECK_EQUAL(onlooker_open(region), 0);
    /* rows of 1 + 4 + 3 words: 15 a block, so 4 blocks and 60 rows; the plain group is block 0 */
    CHECK_EQUAL(region->blocks, 5);
    CHECK_EQUAL(table->capacity, 60);
    a = row_of(table, "alice", 1);
    CHECK(a.generation == 1 && a.index == 0);
    b = row_of(table, "alice", 1);
    CHECK(a.index == b.index && a.generation == b.generation);
    CHECK_EQUAL(onlooker_table_update(table, a, values, 16), 0);
    CHECK_EQUAL(onlooker_table_add(table, a, 0, 10), 0);
    CHECK_EQUAL(onlooker_table_set_i64(table, a, 1, -1), 0);
    CHECK_EQUAL(onlooker_table_set_text(table, a, 2, "cheerful"), 0);
    CHECK_EQUAL(onlooker_table_set_text(table, a, 1, "x"), -1);
    CHECK_EQUAL(onlooker_table_set_u64(table, a, 3, 1), -1);
    CHECK_EQUAL(onlooker_table_set_u64(table, a, -1, 1), -1);
    CHECK_EQUAL(onlooker_table_update(table, a, values, 32), -1);
    words = block_of(region, 1) + 3;
    CHECK_EQUAL(words[0], 1 | (uint64_t)1 << 32);
    CHECK(memcmp(words + 1, "alice\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32) == 0);
    CHECK(words[5] == 15 && words[6] == (uint64_t)-1 && memcmp(words + 7, "cheerful", 8) == 0);
    CHECK_EQUAL(refused(block_of(region, 1), 0), 0);
    CHECK_EQUAL(onlooker_table_remove(table, a), 0);
    CHECK_EQUAL(onlooker_table_remove(table, a), -1);
    CHECK(words[0] == 1 && words[1] == 0 && words[5] == 0);
    CHECK_EQUAL(onlooker_table_add(table, a, 0, 1), -1);
    CHECK_EQUAL(row_of(table, "alice", 0).generation, 0);

    onlooker_table_begin(table); /* one commit for all */
    version = (uint32_t)block_of(region, 1)[0];
    for (i = 0; i < 60; i++) {
        (void)snprintf(name, sizeof name, "client %u with a name that is too long", i);
        row = row_of(table, name, 1);
        CHECK_EQUAL(row.generation, i == 59 ? 2 : 1); /* the freed row rests longest */
        CHECK_EQUAL(onlooker_table_set_u64(table, row, 0, i), 0);
    }
    CHECK_EQUAL((uint32_t)block_of(region, 1)[0], version);
    onlooker_table_commit(table);
    CHECK_EQUAL((uint32_t)block_of(region, 1)[0], version + 2);
    CHECK_EQUAL(row_of(table, "one too many", 1).generation, 0);
    CHECK_EQUAL(onlooker_table_refused(table), 1);
    for (i = 0; i < 5; i++) CHECK_EQUAL(i == 0 ? 0 : refused(block_of(region, i), 0), 0);
    CHECK(row_of(table, "client 33 with a name that is too long", 0).generation == 1);
    generation = 0;
    for (i = 0; i < 60; i++) {
        (void)snprintf(name, sizeof name, "client %u with a name that is too long", i);
        row = row_of(table, name, 0);
        generation += row.generation;
        words = block_of(region, 1 + row.index / 15) + 3 + row.index % 15 * 8;
        CHECK_EQUAL(words[5], i);
        if (i % 2) CHECK_EQUAL(onlooker_table_remove(table, row), 0);
    }
    CHECK_EQUAL(generation, 61);
    for (i = 0; i < 60; i++) {
        (void)snprintf(name, sizeof name, "client %u with a name that is too long", i);
        CHECK_EQUAL(row_of(table, name, 0).generation != 0, i % 2 == 0);
    }
    onlooker_table_commit(table); /* without a begin */
    key = onlooker_key(table);
    CHECK_EQUAL(onlooker_table_insert(table, &key).generation, 0); /* a part is missing */
    onlooker_key_u64(&key, 5);
    onlooker_key_text(&key, "x");
    CHECK_EQUAL(onlooker_table_insert(table, &key).generation, 0); /* a part of another type */

    region = onlooker_region("address_test");
    table = onlooker_new_table(region, 3);
    onlooker_table_key_address(table, "peer");
    onlooker_table_key_u64(table, "port");
    (void)onlooker_table_field(table, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "y_total", "", "");
    CHECK_EQUAL(onlooker_open(region), 0);
    key = onlooker_key(table);
    onlooker_key_ipv4(&key, four);
    onlooker_key_u64(&key, 443);
    row = onlooker_table_insert(table, &key);
    CHECK_EQUAL(row.generation, 1);
    CHECK(memcmp(block_of(region, 0) + 4, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x01\x02\x03", 16) == 0 && block_of(region, 0)[6] == 443);
}

/* Readers copy while a writer commits: nothing torn is accepted. */
typedef struct tearing {
    const onlooker_region_t *region;
    int stop;
    unsigned accepted, torn, busy;
} tearing_t;

static void *tear_reader(void *context) {
    tearing_t *t = (tearing_t *)context;
    const uint64_t *block = block_of(t->region, 0);
    while (!__atomic_load_n(&t->stop, __ATOMIC_SEQ_CST)) {
        uint64_t copy[128];
        int i;
        for (i = 127; i >= 0; i--) copy[i] = __atomic_load_n(block + i, __ATOMIC_ACQUIRE);
        if (refused(copy, 0)) {
            t->busy++;
            continue;
        }
        t->accepted++;
        for (i = 4; i < 127; i++) t->torn += copy[i] != copy[3];
    }
    return (void *)0;
}

static void test_tearing(void) {
    onlooker_region_t *region = onlooker_region("tearing_test");
    onlooker_guarded_t *group = onlooker_new_guarded(region);
    pthread_t thread;
    tearing_t t;
    uint64_t values[124], n;
    int i;
    for (i = 0; i < 124; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%d", i);
        (void)onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, name, "", "");
    }
    CHECK_EQUAL(onlooker_open(region), 0);
    memset(&t, 0, sizeof t);
    t.region = region;
    (void)pthread_create(&thread, (pthread_attr_t *)0, tear_reader, &t);
    for (n = 0; n < 200000; n++) {
        for (i = 0; i < 124; i++) values[i] = n;
        onlooker_guarded_commit_values(group, values, sizeof values);
        if (n % 100 == 0) sched_yield();
    }
    check_sleep_ms(5); /* one quiet read at least */
    __atomic_store_n(&t.stop, 1, __ATOMIC_SEQ_CST);
    (void)pthread_join(thread, (void **)0);
    CHECK(t.accepted > 0);
    CHECK_EQUAL(t.torn, 0);
}

/* Threads share a row and a group: no update is lost. */
typedef struct sharing {
    onlooker_table_t *table;
    onlooker_guarded_t *group;
    uint64_t *under_lock;
} sharing_t;

static void *share(void *context) {
    sharing_t *s = (sharing_t *)context;
    onlooker_row_t row;
    int i;
    for (i = 0; i < 3000; i++) {
        if (i % 10 == 0) onlooker_table_begin(s->table);
        row = row_of(s->table, "shared", 1);
        (void)onlooker_table_add(s->table, row, 0, 1);
        if (i % 10 == 9) onlooker_table_commit(s->table);
        onlooker_guarded_begin(s->group);
        onlooker_guarded_set_u64(s->group, 0, ++*s->under_lock);
        onlooker_guarded_commit(s->group);
    }
    return (void *)0;
}

static void test_sharing(void) {
    enum { THREADS = 4 };
    onlooker_region_t *region = onlooker_region("sharing_test");
    pthread_t threads[THREADS];
    uint64_t under_lock = 0;
    sharing_t s;
    int i;
    s.group = onlooker_new_guarded(region);
    s.under_lock = &under_lock;
    (void)onlooker_guarded_field(s.group, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "x_total", "", "");
    s.table = onlooker_new_table(region, 4);
    onlooker_table_key_text(s.table, "name", 8);
    (void)onlooker_table_field(s.table, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "y_total", "", "");
    CHECK_EQUAL(onlooker_open(region), 0);
    for (i = 0; i < THREADS; i++) (void)pthread_create(&threads[i], (pthread_attr_t *)0, share, &s);
    for (i = 0; i < THREADS; i++) (void)pthread_join(threads[i], (void **)0);
    CHECK_EQUAL(block_of(region, 0)[3], THREADS * 3000);
    CHECK_EQUAL(block_of(region, 1)[3 + 2], THREADS * 3000);
    CHECK_EQUAL(refused(block_of(region, 0), 0), 0);
    CHECK_EQUAL(refused(block_of(region, 1), 0), 0);
}

/* ----------------------------------------------------------------------------------------------------- histograms */

static void test_histograms(void) {
    static uint64_t one[4097], two[4097], le[64], count[64];
    unsigned g, n, k;
    for (g = 0; g <= 11; g++) {
        for (n = g + 1; n <= 64; n += n < 60 ? 7 : 1) {
            uint32_t buckets = onlooker_histogram_buckets(g, n), i;
            uint64_t least, greatest, next = 0;
            if (buckets > 4096) continue;
            for (i = 0; i < buckets; i++) {
                onlooker_histogram_range(g, n, i, &least, &greatest);
                if (least != next || greatest < least || onlooker_histogram_index(g, n, least) != i ||
                    onlooker_histogram_index(g, n, greatest) != i || (least > 0 && (greatest - least) > least >> g))
                    CHECK_EQUAL(i, 99999);
                next = greatest + 1;
            }
            CHECK_EQUAL(next, n == 64 ? 0 : (uint64_t)1 << n);
            CHECK_EQUAL(onlooker_histogram_index(g, n, UINT64_MAX), buckets - 1);
        }
    }
    memset(one, 0, sizeof one);
    memset(two, 0, sizeof two);
    for (k = 0; k < 2000; k++) one[onlooker_histogram_index(2, 10, k)]++;
    two[onlooker_histogram_index(2, 10, 0)] = 5;
    one[onlooker_histogram_buckets(2, 10)] = 100;
    two[onlooker_histogram_buckets(2, 10)] = 11;
    onlooker_histogram_merge(2, 10, one, two);
    CHECK_EQUAL(one[onlooker_histogram_buckets(2, 10)], 111);
    CHECK_EQUAL(onlooker_histogram_cumulative(2, 10, one, le, count), 2005);
    for (k = 0; k < 10; k++) {
        CHECK_EQUAL(le[k], ((uint64_t)1 << k) - 1);
        CHECK_EQUAL(count[k], ((uint64_t)1 << k) + 5);
    }
}

int main(void) {
    (void)setenv("ONLOOKER_SOCKET", "/nonexistent/onlooker/agent.sock", 1);
    onl_lock(&onl.lock);
    onl_init();
    onl_unlock(&onl.lock);
    test_crc();
    test_json_writing();
    test_json_reading();
    test_layout();
    test_faulty_regions();
    test_guarded();
    test_tables();
    test_tearing();
    test_sharing();
    test_histograms();
#ifdef HAVE_VECTORS
    test_vectors();
#endif
    return check_report("unit");
}
