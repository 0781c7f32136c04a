// SPDX-License-Identifier: Apache-2.0
/* The SDK against docs/format/vectors.json; vectors.h is made of it by make-vectors.py. */
#define ONLOOKER_IMPLEMENTATION
#include "../onlooker.h"

#include "check.h"
#include <arpa/inet.h>
#include "vectors.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void test_blocks(void) {
    size_t i, j;
    for (i = 0; i < COUNT(crc_vectors); i++) CHECK_EQUAL(onl_crc32(crc_vectors[i].bytes, crc_vectors[i].n), crc_vectors[i].crc);
    for (i = 0; i < COUNT(identity_vectors); i++)
        CHECK_EQUAL(onl_identity((uint64_t)identity_vectors[i].region << 16 | (uint64_t)identity_vectors[i].generation << 40,
                                 identity_vectors[i].index),
                    identity_vectors[i].word);
    for (i = 0; i < COUNT(plain_vectors); i++)
        CHECK_EQUAL(onlooker_plain_word(plain_vectors[i].slot), plain_vectors[i].block * 128u + plain_vectors[i].word);
    for (i = 0; i < COUNT(guarded_vectors); i++) {
        uint64_t image[128], block[128], expected[128];
        memcpy(expected, guarded_vectors[i].block, 1024);
        memcpy(image, expected, 1024);
        memset(block, 0, sizeof block);
        /* block.md, writer, step 1: bit 0 cleared. An image always holds an even version. */
        image[0] = guarded_vectors[i].version_before & ~1u;
        image[1] = image[2] = image[127] = 0;
        onl_write_block(block, image, 124, guarded_vectors[i].identity, guarded_vectors[i].time_ns);
        for (j = 0; j < 128; j++) CHECK_EQUAL(block[j], expected[j]);
        CHECK(onl_read_block(block, image));
    }
}

static void test_tables(void) {
    size_t i;
    uint32_t j;
    for (i = 0; i < COUNT(layout_vectors); i++) {
        onlooker_region_t *region = onlooker_region("layout");
        onlooker_table_t *table = onlooker_new_table(region, layout_vectors[i].capacity_of_4_blocks);
        for (j = 0; j < layout_vectors[i].key_words; j++) {
            char name[16];
            (void)snprintf(name, sizeof name, "k%u", j);
            onlooker_table_key_u64(table, name);
        }
        for (j = 0; j < layout_vectors[i].value_words; j++) {
            char name[16];
            (void)snprintf(name, sizeof name, "v%u", j);
            (void)onlooker_table_field(table, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, name, "", "");
        }
        CHECK_EQUAL(onlooker_open(region), 0);
        CHECK_EQUAL(table->row_words, layout_vectors[i].row_words);
        CHECK_EQUAL(table->rows_per_block, layout_vectors[i].rows_per_block);
        CHECK_EQUAL(table->capacity, layout_vectors[i].capacity_of_4_blocks);
        CHECK_EQUAL(table->group.blocks, 4);
        if (layout_vectors[i].row < table->capacity)
            CHECK_EQUAL(onl_row(table, layout_vectors[i].row) - table->group.images,
                        layout_vectors[i].block * 128 + 3 + layout_vectors[i].word);
    }
    for (i = 0; i < COUNT(text_vectors); i++) {
        uint64_t words[8];
        onl_set_text(words, text_vectors[i].bytes, text_vectors[i].text);
        CHECK(memcmp(words, text_vectors[i].key, text_vectors[i].bytes) == 0);
    }
    for (i = 0; i < COUNT(address_vectors); i++) {
        onlooker_region_t *region = onlooker_region("address");
        onlooker_table_t *table = onlooker_new_table(region, 1);
        onlooker_key_t key;
        unsigned char address[16];
        onlooker_table_key_address(table, "peer");
        (void)onlooker_table_field(table, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, "value", "", "");
        CHECK_EQUAL(onlooker_open(region), 0);
        key = onlooker_key(table);
        if (inet_pton(AF_INET, address_vectors[i].address, address) == 1) onlooker_key_ipv4(&key, address);
        else if (inet_pton(AF_INET6, address_vectors[i].address, address) == 1) onlooker_key_ipv6(&key, address);
        CHECK(memcmp(key.words, address_vectors[i].key, 16) == 0);
    }
}

static void test_histograms(void) {
    static uint64_t slots[4097];
    size_t i, j;
    for (i = 0; i < COUNT(bucket_vectors); i++) {
        CHECK_EQUAL(onlooker_histogram_buckets(bucket_vectors[i].g, bucket_vectors[i].n), bucket_vectors[i].buckets);
        CHECK_EQUAL(bucket_vectors[i].slots, bucket_vectors[i].buckets + 1);
    }
    for (i = 0; i < COUNT(index_vectors); i++)
        CHECK_EQUAL(onlooker_histogram_index(index_vectors[i].g, index_vectors[i].n, index_vectors[i].value), index_vectors[i].index);
    for (i = 0; i < COUNT(range_vectors); i++) {
        uint64_t least, greatest;
        onlooker_histogram_range(range_vectors[i].g, range_vectors[i].n, range_vectors[i].bucket, &least, &greatest);
        CHECK_EQUAL(least, range_vectors[i].least);
        CHECK_EQUAL(greatest, range_vectors[i].greatest);
    }
    for (i = 0; i < COUNT(merge_vectors); i++) {
        unsigned g = merge_vectors[i].g, n = merge_vectors[i].n;
        memcpy(slots, merge_vectors[i].a, sizeof slots);
        onlooker_histogram_merge(g, n, slots, merge_vectors[i].b);
        for (j = 0; j <= onlooker_histogram_buckets(g, n); j++) CHECK_EQUAL(slots[j], merge_vectors[i].merged[j]);
    }
    for (i = 0; i < COUNT(cumulative_vectors); i++) {
        unsigned n = cumulative_vectors[i].n;
        uint64_t le[64], count[64];
        CHECK_EQUAL(onlooker_histogram_cumulative(cumulative_vectors[i].g, n, cumulative_vectors[i].slots, le, count),
                    cumulative_vectors[i].cumulative[n]);
        for (j = 0; j < n; j++) CHECK_EQUAL(count[j], cumulative_vectors[i].cumulative[j]);
    }
}

int main(void) {
    (void)setenv("ONLOOKER_DISABLE", "1", 1);
    onl_lock(&onl.lock);
    onl_init();
    onl_unlock(&onl.lock);
    test_blocks();
    test_tables();
    test_histograms();
    return check_report("vectors");
}
