// SPDX-License-Identifier: Apache-2.0
/*
 * onlooker.h - publish a program's metrics through memory. One header, C11 or C++17, Linux; link with -pthread.
 *
 * The program keeps its metrics in words of its own memory and changes them with plain atomic instructions. The SDK moves that
 * memory, at the same addresses, onto a range which the Onlooker agent hands out; readers fetch it from there without waking
 * this program. With no agent on the machine everything works the same and nobody looks.
 *
 * In ONE source file of each program or shared library:
 *
 *     #define ONLOOKER_IMPLEMENTATION
 *     #include "onlooker.h"            // before every other include, or with -D_GNU_SOURCE
 *
 * and everywhere else just include it. User guide: docs/sdk-c.md. Formats: docs/format/.
 *
 * Chapters:  1 words   2 section macros   3 hot path   4 regions   5 guarded groups   6 tables   7 histograms   8 the SDK itself
 * and, in the implementing file only:
 *            A basics   B CRC-32   C JSON   D builder and layout   E guarded blocks   F tables   G histograms   H memory and the switch
 *            I connection   J thread   K fork   L section   M public calls
 *
 * Who writes what: values are written by the program's threads; identity words and the switch by the SDK's thread (or, before
 * it exists, by the thread that calls); readers only read. Counters lose nothing in a switch as long as they are changed by this
 * header's functions, or by other atomic additions.
 */
#ifndef ONLOOKER_H
#define ONLOOKER_H

#if defined(ONLOOKER_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#include <stddef.h>
#include <stdint.h>

#if !defined(__linux__) || !defined(__GNUC__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || __SIZEOF_POINTER__ != 8
#error "onlooker.h: needs Linux, gcc or clang, and a 64-bit little-endian machine"
#endif

#define ONLOOKER_SDK "c 0.1.0"

/* Hidden: each executable and each shared library has an SDK of its own, and its counters are at link-time constant addresses. */
#define ONLOOKER_HIDDEN __attribute__((visibility("hidden")))
#ifdef __cplusplus
#define ONLOOKER_LINKAGE extern "C"
extern "C" {
#else
#define ONLOOKER_LINKAGE extern
#endif

/* A wrong pointer is an error, as in C++: C only warns, and what is counted then would be lost. Written once, evaluated once. */
#ifdef __cplusplus
#define ONLOOKER_CHECKED(holds, message, expression) (expression)
#else
#define ONLOOKER_CHECKED(holds, message, expression)                                                                             \
    ((void)sizeof(struct { _Static_assert(holds, message); char unused; }), (expression))
#endif
/* Of an array: of the pointer to its first element, which is what a function gets. */
#define ONLOOKER_IS(type, pointer) __builtin_types_compatible_p(__typeof__(1 ? (pointer) : (pointer)), type)
/* The address of the program's pointer to a word, which onlooker_open() lets point to the word's place. */
#define ONLOOKER_OUT(type, out)                                                                                                  \
    ONLOOKER_CHECKED(ONLOOKER_IS(type **, out), "give the address of a pointer: " #type " *name; and then &name", out)
/* The address of what is no pointer: the program's array or histogram. */
#define ONLOOKER_OUT_STRUCT(type, out)                                                                                           \
    ONLOOKER_CHECKED(ONLOOKER_IS(type *, out), "give the address of a variable: " #type " name; and then &name", out)
/* Not the address of a pointer, which would be overwritten itself, and not another kind of metric. */
#define ONLOOKER_USED(type, pointer)                                                                                             \
    ONLOOKER_CHECKED(ONLOOKER_IS(type *, pointer) || ONLOOKER_IS(const type *, pointer) || ONLOOKER_IS(void *, pointer),         \
                     "this takes a pointer to " #type, pointer)

/* ==================================================================================================== 1 words ===== */

/* One aligned word each (block.md, plain block); separate types so that the wrong operation does not compile. */
typedef struct onlooker_counter {
    uint64_t word;
} __attribute__((aligned(8))) onlooker_counter_t; /* only grows */
typedef struct onlooker_updown {
    int64_t word;
} __attribute__((aligned(8))) onlooker_updown_t; /* a gauge changed by adding: requests in flight */
typedef struct onlooker_gauge {
    int64_t word;
} __attribute__((aligned(8))) onlooker_gauge_t; /* a gauge that is set */
typedef struct onlooker_gauge_f64 {
    double word;
} __attribute__((aligned(8))) onlooker_gauge_f64_t; /* likewise, floating point */

typedef enum onlooker_type { ONLOOKER_U64 = 0, ONLOOKER_I64 = 1, ONLOOKER_F64 = 2, ONLOOKER_TEXT = 3 } onlooker_type_t;
typedef enum onlooker_metric {
    ONLOOKER_METRIC_COUNTER = 0,
    ONLOOKER_METRIC_GAUGE = 1,
    ONLOOKER_METRIC_HISTOGRAM = 2,
    ONLOOKER_METRIC_INFO = 3
} onlooker_metric_t;

/* ======================================================================================= 2 section macros ===== */

/* What a section macro says about its variable. Read once, when the program starts. */
typedef struct onlooker_descriptor {
    const char *name;
    const char *unit;
    const char *const *text; /* help, then label names and values in turn, then NULL */
    void *address;
    double scale;
    unsigned char metric, type, adds, reserved;
    uint32_t count; /* 0: not an array */
    const char *array_label;
} onlooker_descriptor_t;

/* The section must own its pages. This piece comes last in each file's part of the section (a late subsection), so that every
 * part begins and ends on a page boundary. The SDK checks the result and declines what the linker did not keep so. */
#if defined(__x86_64__)
#define ONLOOKER_PAGE_ALIGNMENT "4096"
#else
#define ONLOOKER_PAGE_ALIGNMENT "65536"
#endif
__asm__(".pushsection onlooker_data, 8000, \"aw\", %progbits\n\t.balign " ONLOOKER_PAGE_ALIGNMENT "\n\t.popsection\n");

#define ONLOOKER_IN_DATA __attribute__((used, section("onlooker_data"), aligned(8)))
/* Only the descriptors are roots for --gc-sections: they refer to the data. `retain` is for lld, which would drop them. */
#if defined(__clang__) && defined(__has_attribute)
#if __has_attribute(retain)
#define ONLOOKER_IN_FIELDS __attribute__((used, retain, section("onlooker_fields"), aligned(8)))
#endif
#endif
#ifndef ONLOOKER_IN_FIELDS
#define ONLOOKER_IN_FIELDS __attribute__((used, section("onlooker_fields"), aligned(8)))
#endif

/* Everything the shorter macros can say. `linkage` is ONLOOKER_GLOBAL or static, `suffix` is empty or [count]; then help and labels. */
#define ONLOOKER_GLOBAL ONLOOKER_HIDDEN
#define ONLOOKER_DEFINE(linkage, ctype, variable, suffix, name, metric, type, adds, scale, count, label, unit, ...)              \
    linkage ctype variable suffix ONLOOKER_IN_DATA = ONLOOKER_ZERO;                                                              \
    static const char *const onlooker_text_##variable[] = {__VA_ARGS__, (const char *)0};                                        \
    static const onlooker_descriptor_t onlooker_descriptor_##variable = {                                                        \
        name, unit, onlooker_text_##variable, (void *)&variable, scale, metric, type, adds, 0, count, label};                    \
    static const onlooker_descriptor_t *const onlooker_field_##variable ONLOOKER_IN_FIELDS = &onlooker_descriptor_##variable
#ifdef __cplusplus
#define ONLOOKER_ZERO {}
#else
#define ONLOOKER_ZERO {0}
#endif
#define ONLOOKER_NONE

/* At file scope; the metric is called like the variable:
 *     ONLOOKER_COUNTER(requests_total, "requests", "Requests served", "shard", "3");
 *     ... onlooker_counter_inc(&requests_total);
 * The variables are zero at start and visible in the whole program: `extern onlooker_counter_t requests_total ONLOOKER_HIDDEN;` */
#define ONLOOKER_COUNTER(variable, unit, ...) ONLOOKER_COUNTER_AS(variable, #variable, 1.0, unit, __VA_ARGS__)
#define ONLOOKER_UPDOWN(variable, unit, ...) ONLOOKER_UPDOWN_AS(variable, #variable, 1.0, unit, __VA_ARGS__)
#define ONLOOKER_GAUGE(variable, unit, ...) ONLOOKER_GAUGE_AS(variable, #variable, 1.0, unit, __VA_ARGS__)
#define ONLOOKER_GAUGE_F64(variable, unit, ...) ONLOOKER_GAUGE_F64_AS(variable, #variable, 1.0, unit, __VA_ARGS__)
/* Elements are labelled label="0", "1", ... :  ONLOOKER_COUNTER_ARRAY(jobs_total, 8, "worker", "jobs", "Jobs done"); */
#define ONLOOKER_COUNTER_ARRAY(variable, count, label, unit, ...)                                                                \
    ONLOOKER_DEFINE(ONLOOKER_GLOBAL, onlooker_counter_t, variable, [count], #variable, ONLOOKER_METRIC_COUNTER, ONLOOKER_U64, 1,   \
                    1.0, count, label, unit, __VA_ARGS__)
#define ONLOOKER_UPDOWN_ARRAY(variable, count, label, unit, ...)                                                                 \
    ONLOOKER_DEFINE(ONLOOKER_GLOBAL, onlooker_updown_t, variable, [count], #variable, ONLOOKER_METRIC_GAUGE, ONLOOKER_I64, 1, 1.0, \
                    count, label, unit, __VA_ARGS__)
#define ONLOOKER_GAUGE_ARRAY(variable, count, label, unit, ...)                                                                  \
    ONLOOKER_DEFINE(ONLOOKER_GLOBAL, onlooker_gauge_t, variable, [count], #variable, ONLOOKER_METRIC_GAUGE, ONLOOKER_I64, 0, 1.0, count, \
                    label, unit, __VA_ARGS__)
#define ONLOOKER_GAUGE_F64_ARRAY(variable, count, label, unit, ...)                                                              \
    ONLOOKER_DEFINE(ONLOOKER_GLOBAL, onlooker_gauge_f64_t, variable, [count], #variable, ONLOOKER_METRIC_GAUGE, ONLOOKER_F64, 0, 1.0, \
                    count, label, unit, __VA_ARGS__)
/* With a metric name (so that several variables make one metric, told apart by labels) and a scale: exported = word * scale. */
#define ONLOOKER_COUNTER_AS(variable, name, scale, unit, ...)                                                                    \
    ONLOOKER_DEFINE(ONLOOKER_GLOBAL, onlooker_counter_t, variable, ONLOOKER_NONE, name, ONLOOKER_METRIC_COUNTER, ONLOOKER_U64, 1, scale, \
                    0, 0, unit, __VA_ARGS__)
#define ONLOOKER_UPDOWN_AS(variable, name, scale, unit, ...)                                                                     \
    ONLOOKER_DEFINE(ONLOOKER_GLOBAL, onlooker_updown_t, variable, ONLOOKER_NONE, name, ONLOOKER_METRIC_GAUGE, ONLOOKER_I64, 1, scale, 0, \
                    0, unit, __VA_ARGS__)
#define ONLOOKER_GAUGE_AS(variable, name, scale, unit, ...)                                                                      \
    ONLOOKER_DEFINE(ONLOOKER_GLOBAL, onlooker_gauge_t, variable, ONLOOKER_NONE, name, ONLOOKER_METRIC_GAUGE, ONLOOKER_I64, 0, scale, 0, \
                    0, unit, __VA_ARGS__)
#define ONLOOKER_GAUGE_F64_AS(variable, name, scale, unit, ...)                                                                  \
    ONLOOKER_DEFINE(ONLOOKER_GLOBAL, onlooker_gauge_f64_t, variable, ONLOOKER_NONE, name, ONLOOKER_METRIC_GAUGE, ONLOOKER_F64, 0, scale, \
                    0, 0, unit, __VA_ARGS__)
/* The same, known in their own file only. */
#define ONLOOKER_STATIC_COUNTER(variable, unit, ...)                                                                             \
    ONLOOKER_DEFINE(static, onlooker_counter_t, variable, ONLOOKER_NONE, #variable, ONLOOKER_METRIC_COUNTER, ONLOOKER_U64, 1, 1.0, 0, 0, \
                    unit, __VA_ARGS__)
#define ONLOOKER_STATIC_UPDOWN(variable, unit, ...)                                                                              \
    ONLOOKER_DEFINE(static, onlooker_updown_t, variable, ONLOOKER_NONE, #variable, ONLOOKER_METRIC_GAUGE, ONLOOKER_I64, 1, 1.0, 0, 0, unit, \
                    __VA_ARGS__)
#define ONLOOKER_STATIC_GAUGE(variable, unit, ...)                                                                               \
    ONLOOKER_DEFINE(static, onlooker_gauge_t, variable, ONLOOKER_NONE, #variable, ONLOOKER_METRIC_GAUGE, ONLOOKER_I64, 0, 1.0, 0, 0, unit, \
                    __VA_ARGS__)
#define ONLOOKER_STATIC_GAUGE_F64(variable, unit, ...)                                                                           \
    ONLOOKER_DEFINE(static, onlooker_gauge_f64_t, variable, ONLOOKER_NONE, #variable, ONLOOKER_METRIC_GAUGE, ONLOOKER_F64, 0, 1.0, 0, 0, \
                    unit, __VA_ARGS__)
#define ONLOOKER_STATIC_COUNTER_ARRAY(variable, count, label, unit, ...)                                                         \
    ONLOOKER_DEFINE(static, onlooker_counter_t, variable, [count], #variable, ONLOOKER_METRIC_COUNTER, ONLOOKER_U64, 1, 1.0, count, label, \
                    unit, __VA_ARGS__)

/* ============================================================================================== 3 hot path ===== */

/* Each is one relaxed atomic instruction on the word; no function of the SDK runs. */
static inline void onlooker_counter_add(onlooker_counter_t *counter, uint64_t n) {
    (void)__atomic_fetch_add(&counter->word, n, __ATOMIC_RELAXED);
}
static inline void onlooker_counter_inc(onlooker_counter_t *counter) { onlooker_counter_add(counter, 1); }
static inline uint64_t onlooker_counter_value(const onlooker_counter_t *counter) {
    return __atomic_load_n(&counter->word, __ATOMIC_RELAXED);
}
static inline void onlooker_updown_add(onlooker_updown_t *gauge, int64_t n) {
    (void)__atomic_fetch_add(&gauge->word, n, __ATOMIC_RELAXED);
}
static inline int64_t onlooker_updown_value(const onlooker_updown_t *gauge) { return __atomic_load_n(&gauge->word, __ATOMIC_RELAXED); }
static inline void onlooker_gauge_set(onlooker_gauge_t *gauge, int64_t value) {
    __atomic_store_n(&gauge->word, value, __ATOMIC_RELAXED);
}
static inline int64_t onlooker_gauge_value(const onlooker_gauge_t *gauge) { return __atomic_load_n(&gauge->word, __ATOMIC_RELAXED); }
static inline void onlooker_gauge_f64_set(onlooker_gauge_f64_t *gauge, double value) {
    __atomic_store(&gauge->word, &value, __ATOMIC_RELAXED);
}
static inline double onlooker_gauge_f64_value(const onlooker_gauge_f64_t *gauge) {
    double value;
    __atomic_load(&gauge->word, &value, __ATOMIC_RELAXED);
    return value;
}

/* From here on these are macros, too, which look at the pointer and then call the function of the same name. */
#define onlooker_counter_add(counter, n) onlooker_counter_add(ONLOOKER_USED(onlooker_counter_t, counter), n)
#define onlooker_counter_inc(counter) onlooker_counter_inc(ONLOOKER_USED(onlooker_counter_t, counter))
#define onlooker_updown_add(gauge, n) onlooker_updown_add(ONLOOKER_USED(onlooker_updown_t, gauge), n)
#define onlooker_gauge_set(gauge, value) onlooker_gauge_set(ONLOOKER_USED(onlooker_gauge_t, gauge), value)
#define onlooker_gauge_f64_set(gauge, value) onlooker_gauge_f64_set(ONLOOKER_USED(onlooker_gauge_f64_t, gauge), value)

/* Slot s of a plain group is word 1 + s % 127 of block s / 127 (schema.md), that is word s + s / 127 + 1 of the group. */
static inline uint64_t onlooker_plain_word(uint32_t slot) { return (uint64_t)slot + slot / 127u + 1u; }

/* Where handles point before onlooker_open(), and where elements beyond an array's end go: counted by nobody, harmful to nobody. */
#define ONLOOKER_SINK_WORDS 4160
ONLOOKER_LINKAGE ONLOOKER_HIDDEN uint64_t onlooker_sink[ONLOOKER_SINK_WORDS];

/* Arrays of a region. An element's address never changes: fetch it once per thread, then use the functions above. */
typedef struct onlooker_array {
    uint64_t *words;
    uint32_t first, stride, count;
} onlooker_array_t;
typedef struct onlooker_counter_array {
    onlooker_array_t array;
} onlooker_counter_array_t;
typedef struct onlooker_updown_array {
    onlooker_array_t array;
} onlooker_updown_array_t;
typedef struct onlooker_gauge_array {
    onlooker_array_t array;
} onlooker_gauge_array_t;
typedef struct onlooker_gauge_f64_array {
    onlooker_array_t array;
} onlooker_gauge_f64_array_t;

static inline void *onlooker_array_at(const onlooker_array_t *array, uint32_t index) {
    return index < array->count ? array->words + onlooker_plain_word(array->first + index * array->stride) : onlooker_sink;
}
static inline onlooker_counter_t *onlooker_counter_at(const onlooker_counter_array_t *array, uint32_t index) {
    return (onlooker_counter_t *)onlooker_array_at(&array->array, index);
}
static inline onlooker_updown_t *onlooker_updown_at(const onlooker_updown_array_t *array, uint32_t index) {
    return (onlooker_updown_t *)onlooker_array_at(&array->array, index);
}
static inline onlooker_gauge_t *onlooker_gauge_at(const onlooker_gauge_array_t *array, uint32_t index) {
    return (onlooker_gauge_t *)onlooker_array_at(&array->array, index);
}
static inline onlooker_gauge_f64_t *onlooker_gauge_f64_at(const onlooker_gauge_f64_array_t *array, uint32_t index) {
    return (onlooker_gauge_f64_t *)onlooker_array_at(&array->array, index);
}

#define onlooker_counter_at(array, index) onlooker_counter_at(ONLOOKER_USED(onlooker_counter_array_t, array), index)
#define onlooker_updown_at(array, index) onlooker_updown_at(ONLOOKER_USED(onlooker_updown_array_t, array), index)
#define onlooker_gauge_at(array, index) onlooker_gauge_at(ONLOOKER_USED(onlooker_gauge_array_t, array), index)
#define onlooker_gauge_f64_at(array, index) onlooker_gauge_f64_at(ONLOOKER_USED(onlooker_gauge_f64_array_t, array), index)

/* ================================================================================================ 4 regions ===== */

/* A region is built once, then opened, and lives as long as the program. Never NULL: a region that cannot be (no memory, a bad
 * name, a limit) accepts every call, keeps the program's values to itself, and says why in onlooker_open() and onlooker_status(). */
typedef struct onlooker_region_t onlooker_region_t;

ONLOOKER_HIDDEN onlooker_region_t *onlooker_region(const char *name);
/* Tells regions of one name apart within a process; a label of every series; class name of the schema (else the region's name). */
ONLOOKER_HIDDEN void onlooker_region_instance(onlooker_region_t *region, const char *instance);
ONLOOKER_HIDDEN void onlooker_region_label(onlooker_region_t *region, const char *name, const char *value);
ONLOOKER_HIDDEN void onlooker_region_class(onlooker_region_t *region, const char *name);

/* Fields:  onlooker_new_counter(region, &pointer, name, unit, help, label, value, label, value, ...)
 * `pointer` is valid at once (but counts into the void) and final when onlooker_open() returns. */
#define onlooker_new_counter(region, out, ...)                                                                                   \
    onlooker_new_counter_(region, ONLOOKER_OUT(onlooker_counter_t, out), __VA_ARGS__, (const char *)0)
#define onlooker_new_updown(region, out, ...)                                                                                    \
    onlooker_new_updown_(region, ONLOOKER_OUT(onlooker_updown_t, out), __VA_ARGS__, (const char *)0)
#define onlooker_new_gauge(region, out, ...)                                                                                     \
    onlooker_new_gauge_(region, ONLOOKER_OUT(onlooker_gauge_t, out), __VA_ARGS__, (const char *)0)
#define onlooker_new_gauge_f64(region, out, ...)                                                                                 \
    onlooker_new_gauge_f64_(region, ONLOOKER_OUT(onlooker_gauge_f64_t, out), __VA_ARGS__, (const char *)0)
/* Arrays: (region, &array, count, stride, label, name, unit, help, labels...). A stride of ONLOOKER_SPREAD keeps elements out of
 * each other's cache lines: for one element a thread. */
#define ONLOOKER_PACKED 1
#define ONLOOKER_SPREAD 8
#define onlooker_new_counter_array(region, out, count, stride, label, ...)                                                       \
    onlooker_new_counter_array_(region, ONLOOKER_OUT_STRUCT(onlooker_counter_array_t, out), count, stride, label, __VA_ARGS__, (const char *)0)
#define onlooker_new_updown_array(region, out, count, stride, label, ...)                                                        \
    onlooker_new_updown_array_(region, ONLOOKER_OUT_STRUCT(onlooker_updown_array_t, out), count, stride, label, __VA_ARGS__, (const char *)0)
#define onlooker_new_gauge_array(region, out, count, stride, label, ...)                                                         \
    onlooker_new_gauge_array_(region, ONLOOKER_OUT_STRUCT(onlooker_gauge_array_t, out), count, stride, label, __VA_ARGS__, (const char *)0)
#define onlooker_new_gauge_f64_array(region, out, count, stride, label, ...)                                                     \
    onlooker_new_gauge_f64_array_(region, ONLOOKER_OUT_STRUCT(onlooker_gauge_f64_array_t, out), count, stride, label, __VA_ARGS__, (const char *)0)
/* Of the field made last, in any group or table of the region: exported value = word * scale; how finely the value really moves;
 * label values of an array's elements instead of "0", "1", ... (as many as the array has). */
ONLOOKER_HIDDEN void onlooker_scale(onlooker_region_t *region, double scale);
ONLOOKER_HIDDEN void onlooker_resolution_ns(onlooker_region_t *region, uint64_t ns);
ONLOOKER_HIDDEN void onlooker_values(onlooker_region_t *region, const char *const *values);

/* Lays the region out, puts it into memory, and has it registered as soon as there is an agent; does not wait for that. Returns 0,
 * or -1 when the region stays private: the values work all the same, onlooker_status() says what was wrong. */
ONLOOKER_HIDDEN int onlooker_open(onlooker_region_t *region);

#define ONLOOKER_ENDS_WITH_NULL __attribute__((sentinel))
ONLOOKER_HIDDEN void onlooker_new_counter_(onlooker_region_t *, onlooker_counter_t **, const char *, const char *, const char *,
                                           ...) ONLOOKER_ENDS_WITH_NULL;
ONLOOKER_HIDDEN void onlooker_new_updown_(onlooker_region_t *, onlooker_updown_t **, const char *, const char *, const char *,
                                          ...) ONLOOKER_ENDS_WITH_NULL;
ONLOOKER_HIDDEN void onlooker_new_gauge_(onlooker_region_t *, onlooker_gauge_t **, const char *, const char *, const char *,
                                         ...) ONLOOKER_ENDS_WITH_NULL;
ONLOOKER_HIDDEN void onlooker_new_gauge_f64_(onlooker_region_t *, onlooker_gauge_f64_t **, const char *, const char *, const char *,
                                             ...) ONLOOKER_ENDS_WITH_NULL;
ONLOOKER_HIDDEN void onlooker_new_counter_array_(onlooker_region_t *, onlooker_counter_array_t *, uint32_t, uint32_t, const char *,
                                                 const char *, const char *, const char *, ...) ONLOOKER_ENDS_WITH_NULL;
ONLOOKER_HIDDEN void onlooker_new_updown_array_(onlooker_region_t *, onlooker_updown_array_t *, uint32_t, uint32_t, const char *,
                                                const char *, const char *, const char *, ...) ONLOOKER_ENDS_WITH_NULL;
ONLOOKER_HIDDEN void onlooker_new_gauge_array_(onlooker_region_t *, onlooker_gauge_array_t *, uint32_t, uint32_t, const char *,
                                               const char *, const char *, const char *, ...) ONLOOKER_ENDS_WITH_NULL;
ONLOOKER_HIDDEN void onlooker_new_gauge_f64_array_(onlooker_region_t *, onlooker_gauge_f64_array_t *, uint32_t, uint32_t, const char *,
                                                   const char *, const char *, const char *, ...) ONLOOKER_ENDS_WITH_NULL;

/* ========================================================================================= 5 guarded groups ===== */

/* Values that belong together: one block, always read as one commit left it, with the commit's time. At most 124 words.
 * One writer at a time: begin() waits for the commit() of another thread; commit_values() does both in one. */
typedef struct onlooker_guarded onlooker_guarded_t;

ONLOOKER_HIDDEN onlooker_guarded_t *onlooker_new_guarded(onlooker_region_t *region);
/* Adds a field of one word and returns its slot: 0, 1, 2, ... in order, so that a struct of 8-byte members matches the group. */
#define onlooker_guarded_field(group, type, metric, ...) onlooker_guarded_field_(group, type, metric, __VA_ARGS__, (const char *)0)
/* Adds a text (an info metric) of `bytes` bytes, a multiple of 8, and returns its first slot. */
#define onlooker_guarded_text(group, bytes, ...) onlooker_guarded_text_(group, bytes, __VA_ARGS__, (const char *)0)

ONLOOKER_HIDDEN void onlooker_guarded_begin(onlooker_guarded_t *group);
ONLOOKER_HIDDEN void onlooker_guarded_set_u64(onlooker_guarded_t *group, int slot, uint64_t value);
ONLOOKER_HIDDEN void onlooker_guarded_set_i64(onlooker_guarded_t *group, int slot, int64_t value);
ONLOOKER_HIDDEN void onlooker_guarded_set_f64(onlooker_guarded_t *group, int slot, double value);
ONLOOKER_HIDDEN void onlooker_guarded_set_text(onlooker_guarded_t *group, int slot, const char *text);
ONLOOKER_HIDDEN void onlooker_guarded_commit(onlooker_guarded_t *group);
/* Sets the first `bytes` bytes of the group and commits: onlooker_guarded_commit_values(group, &values, sizeof values). */
ONLOOKER_HIDDEN void onlooker_guarded_commit_values(onlooker_guarded_t *group, const void *values, size_t bytes);

ONLOOKER_HIDDEN int onlooker_guarded_field_(onlooker_guarded_t *, onlooker_type_t, onlooker_metric_t, const char *, const char *,
                                            const char *, ...) ONLOOKER_ENDS_WITH_NULL;
ONLOOKER_HIDDEN int onlooker_guarded_text_(onlooker_guarded_t *, uint32_t, const char *, const char *, ...) ONLOOKER_ENDS_WITH_NULL;

/* ================================================================================================= 6 tables ===== */

/* Rows of one shape with a typed key (table.md): clients, tenants, devices. Room for `rows` rows, at least. */
typedef struct onlooker_table onlooker_table_t;
typedef struct onlooker_row {
    uint32_t index;
    uint32_t generation; /* 0: no row (table full, key not found); every call takes such a row and does nothing */
} onlooker_row_t;
typedef struct onlooker_key_t {
    const onlooker_table_t *table;
    uint64_t words[8];
    uint32_t parts, used;
    int bad;
} onlooker_key_t;

ONLOOKER_HIDDEN onlooker_table_t *onlooker_new_table(onlooker_region_t *region, uint32_t rows);
ONLOOKER_HIDDEN void onlooker_table_key_text(onlooker_table_t *table, const char *name, uint32_t bytes);
ONLOOKER_HIDDEN void onlooker_table_key_u64(onlooker_table_t *table, const char *name);
ONLOOKER_HIDDEN void onlooker_table_key_address(onlooker_table_t *table, const char *name);
#define onlooker_table_field(table, type, metric, ...) onlooker_table_field_(table, type, metric, __VA_ARGS__, (const char *)0)
#define onlooker_table_text(table, bytes, ...) onlooker_table_text_(table, bytes, __VA_ARGS__, (const char *)0)

/* A key is filled part by part, in the order of its definition. */
ONLOOKER_HIDDEN onlooker_key_t onlooker_key(const onlooker_table_t *table);
ONLOOKER_HIDDEN void onlooker_key_text(onlooker_key_t *key, const char *text);
ONLOOKER_HIDDEN void onlooker_key_u64(onlooker_key_t *key, uint64_t number);
ONLOOKER_HIDDEN void onlooker_key_ipv6(onlooker_key_t *key, const void *sixteen_bytes); /* as in struct in6_addr */
ONLOOKER_HIDDEN void onlooker_key_ipv4(onlooker_key_t *key, const void *four_bytes);    /* as in struct in_addr */

/* Each call is a commit of its own, unless it stands between begin and commit of the same thread: then that commits once. */
ONLOOKER_HIDDEN void onlooker_table_begin(onlooker_table_t *table);
ONLOOKER_HIDDEN void onlooker_table_commit(onlooker_table_t *table);
/* The row of this key, made if need be; only if it exists. */
ONLOOKER_HIDDEN onlooker_row_t onlooker_table_insert(onlooker_table_t *table, const onlooker_key_t *key);
ONLOOKER_HIDDEN onlooker_row_t onlooker_table_find(onlooker_table_t *table, const onlooker_key_t *key);
/* These return 0, or -1 when the row has ended (removed, or its place given to another key). `slot` is what _field returned. */
ONLOOKER_HIDDEN int onlooker_table_set_u64(onlooker_table_t *table, onlooker_row_t row, int slot, uint64_t value);
ONLOOKER_HIDDEN int onlooker_table_set_i64(onlooker_table_t *table, onlooker_row_t row, int slot, int64_t value);
ONLOOKER_HIDDEN int onlooker_table_set_f64(onlooker_table_t *table, onlooker_row_t row, int slot, double value);
ONLOOKER_HIDDEN int onlooker_table_set_text(onlooker_table_t *table, onlooker_row_t row, int slot, const char *text);
ONLOOKER_HIDDEN int onlooker_table_add(onlooker_table_t *table, onlooker_row_t row, int slot, uint64_t n);
ONLOOKER_HIDDEN int onlooker_table_update(onlooker_table_t *table, onlooker_row_t row, const void *values, size_t bytes);
ONLOOKER_HIDDEN int onlooker_table_remove(onlooker_table_t *table, onlooker_row_t row);
/* Inserts refused because the table was full. */
ONLOOKER_HIDDEN uint64_t onlooker_table_refused(onlooker_table_t *table);

ONLOOKER_HIDDEN int onlooker_table_field_(onlooker_table_t *, onlooker_type_t, onlooker_metric_t, const char *, const char *,
                                          const char *, ...) ONLOOKER_ENDS_WITH_NULL;
ONLOOKER_HIDDEN int onlooker_table_text_(onlooker_table_t *, uint32_t, const char *, const char *, ...) ONLOOKER_ENDS_WITH_NULL;

/* ============================================================================================= 7 histograms ===== */

/* Log-linear (schema.md): below 2^(g+1) every value has its bucket, above each power of two has 2^g; 2^n and more count in the last.
 * 0 <= g < n <= 64, at most 4096 buckets. Values are whole numbers: record nanoseconds and say scale 1e-9, unit "seconds". */
typedef struct onlooker_histogram {
    uint64_t *words;
    uint64_t *sum;
    uint32_t first, buckets;
    uint8_t g, n;
} onlooker_histogram_t;

#define onlooker_new_histogram(region, out, g, n, ...)                                                                           \
    onlooker_new_histogram_(region, ONLOOKER_OUT_STRUCT(onlooker_histogram_t, out), g, n, __VA_ARGS__, (const char *)0)
ONLOOKER_HIDDEN void onlooker_new_histogram_(onlooker_region_t *, onlooker_histogram_t *, unsigned, unsigned, const char *,
                                             const char *, const char *, ...) ONLOOKER_ENDS_WITH_NULL;

static inline uint32_t onlooker_histogram_buckets(unsigned g, unsigned n) { return (n - g + 1u) << g; }

static inline uint32_t onlooker_histogram_index(unsigned g, unsigned n, uint64_t value) {
    unsigned power;
    if (value < ((uint64_t)2 << g)) return (uint32_t)value;
    power = 63u - (unsigned)__builtin_clzll(value);
    if (power >= n) return onlooker_histogram_buckets(g, n) - 1u;
    return ((power - g + 1u) << g) + (uint32_t)((value - ((uint64_t)1 << power)) >> (power - g));
}

/* One atomic addition to the bucket, one to the sum. Before onlooker_open() it counts into the void. */
static inline void onlooker_histogram_record(const onlooker_histogram_t *histogram, uint64_t value) {
    uint32_t slot = histogram->first + onlooker_histogram_index(histogram->g, histogram->n, value);
    (void)__atomic_fetch_add(histogram->words + onlooker_plain_word(slot), (uint64_t)1, __ATOMIC_RELAXED);
    (void)__atomic_fetch_add(histogram->sum, value, __ATOMIC_RELAXED);
}

#define onlooker_histogram_record(histogram, value) onlooker_histogram_record(ONLOOKER_USED(onlooker_histogram_t, histogram), value)

/* Least and greatest value of a bucket. */
ONLOOKER_HIDDEN void onlooker_histogram_range(unsigned g, unsigned n, uint32_t bucket, uint64_t *least, uint64_t *greatest);
/* Copies buckets and then the sum: onlooker_histogram_buckets(g, n) + 1 words. */
ONLOOKER_HIDDEN void onlooker_histogram_read(const onlooker_histogram_t *histogram, uint64_t *slots);
/* Adds `from` to `into`; both as read from histograms of this g and n. */
ONLOOKER_HIDDEN void onlooker_histogram_merge(unsigned g, unsigned n, uint64_t *into, const uint64_t *from);
/* The buckets as Prometheus shows them: n pairs of le = 2^k - 1 (k = 0 .. n-1, not scaled) and the count of values up to it.
 * Returns the count of all values (le = +Inf). */
ONLOOKER_HIDDEN uint64_t onlooker_histogram_cumulative(unsigned g, unsigned n, const uint64_t *slots, uint64_t *le, uint64_t *count);

/* ======================================================================================== 8 the SDK itself ===== */

typedef enum onlooker_state {
    ONLOOKER_IDLE = 0,      /* nothing to publish yet, or not started (ONLOOKER_START_LATE) */
    ONLOOKER_DISABLED = 1,  /* ONLOOKER_DISABLE=1 */
    ONLOOKER_WAITING = 2,   /* no agent, or it does not answer properly; trying */
    ONLOOKER_CONNECTED = 3, /* an agent answers */
    ONLOOKER_DETACHED = 4   /* a forked child that publishes nothing */
} onlooker_state_t;

typedef struct onlooker_status_t {
    onlooker_state_t state;
    uint32_t regions;         /* opened, the section included */
    uint32_t published;       /* visible to readers now */
    uint32_t refused;         /* declined by the agent or faulty; `error` tells about the last one */
    uint64_t connections;     /* successful hellos */
    uint64_t switches;        /* moves of a region to other memory while the program ran */
    uint64_t last_window_ns;  /* length of the last switch's window: first word copied to new memory in place */
    uint64_t worst_window_ns; /* longest of them */
    uint64_t errors;          /* errors so far */
    char error[256];          /* text of the last one, empty if there was none */
} onlooker_status_t;

ONLOOKER_HIDDEN void onlooker_status(onlooker_status_t *status);
/* Called with each error, mostly on the SDK's thread. That thread has none of the program's descriptors: keep the text, write it elsewhere.
 * Call nothing of the SDK. ONLOOKER_DEBUG=1 prints errors to stderr. */
ONLOOKER_HIDDEN void onlooker_on_error(void (*callback)(const char *message, void *context), void *context);
/* Waits until every open region is published: 0, or -1 after the time. For tests and short-lived programs. */
ONLOOKER_HIDDEN int onlooker_wait(int timeout_ms);

/* Starts what publishes, where the implementation was compiled with ONLOOKER_START_LATE: then nothing of the SDK runs (no thread, no socket) before
 * this is called or a region is opened, so that the program can give up rights or change its namespaces first. Otherwise not needed. */
ONLOOKER_HIDDEN void onlooker_start(void);

/* What forked children do; set it before the fork, or in the child to join in late. */
#define ONLOOKER_FORK_DETACH 0 /* default: the child's copies are its own and published nowhere */
#define ONLOOKER_FORK_KEEP 1   /* the child publishes its copies under its own pid: programs that daemonise */
#define ONLOOKER_FORK_FRESH 2  /* likewise, plain counters and histograms beginning at 0: workers that are forked */
ONLOOKER_HIDDEN void onlooker_follow_fork(int mode);

#ifdef __cplusplus
}
#endif
#endif /* ONLOOKER_H */

#if defined(ONLOOKER_IMPLEMENTATION) && !defined(ONLOOKER_IMPLEMENTED)
#define ONLOOKER_IMPLEMENTED

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <wmmintrin.h>
#endif

#if !defined(MREMAP_MAYMOVE) || !defined(F_GET_SEALS)
#error "onlooker.h: in the file that defines ONLOOKER_IMPLEMENTATION include onlooker.h first, or compile with -D_GNU_SOURCE"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* =============================================================================================== A basics ===== */

#ifndef ONLOOKER_SOCKET_PATH
#define ONLOOKER_SOCKET_PATH "/run/onlooker/agent.sock"
#endif
/* An agent that takes longer over an answer counts as gone. */
#ifndef ONLOOKER_ANSWER_MS
#define ONLOOKER_ANSWER_MS 5000
#endif
/* How long values stay on an agent's range after the connection broke, so that the agent can come back and find them live. Must be
 * shorter than the agent's grace (registration.md: 5 s by default), after which the range may be another program's. */
#ifndef ONLOOKER_RETREAT_MS
#define ONLOOKER_RETREAT_MS 2000
#endif
/* Longest pause between attempts to reach an agent; inotify on the socket's directory usually ends it sooner. */
#ifndef ONLOOKER_BACKOFF_MS
#define ONLOOKER_BACKOFF_MS 10000
#endif

/* A region that the agent refused for a reason that can pass (quota, internal) is asked for again after so long. */
#ifndef ONLOOKER_REFUSED_MS
#define ONLOOKER_REFUSED_MS 10000
#endif
/* Likewise `duplicate`, at first: an old connection of this process may be on its way out. Doubles up to the above. */
#ifndef ONLOOKER_DUPLICATE_MS
#define ONLOOKER_DUPLICATE_MS 200
#endif

/* docs/format/: block.md, schema.md, table.md, registration.md */
#define ONL_BLOCK_BYTES 1024u
#define ONL_BLOCK_WORDS 128u
#define ONL_PLAIN_SLOTS 127u
#define ONL_GUARDED_SLOTS 124u
#define ONL_MAX_REGION_BLOCKS 65536u
#define ONL_MAX_GROUPS 64u
#define ONL_MAX_FIELDS 4096u
#define ONL_MAX_COLUMNS 65536u
#define ONL_MAX_NAME_BYTES 128u
#define ONL_MAX_LABEL_VALUE_BYTES 256u
#define ONL_MAX_LABELS 16u
#define ONL_MAX_HELP_BYTES 512u
#define ONL_MAX_UNIT_BYTES 32u
#define ONL_MAX_KEY_PARTS 8u
#define ONL_MAX_KEY_BYTES 64u
#define ONL_MAX_BUCKETS 4096u
#define ONL_MAX_PACKET_BYTES 131072u
/* Ours: answers are small, so a larger one is not an answer. */
#define ONL_MAX_ANSWER_BYTES 8192u
#define ONL_MAX_ANSWER_DEPTH 16u

/* A futex lock (Drepper, "Futexes are tricky", mutex 3): unlike pthread_mutex_t it may be put back to 0 in a forked child. */
typedef struct onl_lock_t {
    int state; /* 0 free, 1 held, 2 held and waited for */
} onl_lock_t;

static void onl_lock(onl_lock_t *lock) {
    int seen = 0;
    if (__atomic_compare_exchange_n(&lock->state, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
    if (seen != 2) seen = __atomic_exchange_n(&lock->state, 2, __ATOMIC_ACQUIRE);
    while (seen != 0) {
        (void)syscall(SYS_futex, &lock->state, 128 | 0 /* FUTEX_WAIT_PRIVATE */, 2, (void *)0, (void *)0, 0);
        seen = __atomic_exchange_n(&lock->state, 2, __ATOMIC_ACQUIRE);
    }
}

static void onl_unlock(onl_lock_t *lock) {
    if (__atomic_exchange_n(&lock->state, 0, __ATOMIC_RELEASE) == 2)
        (void)syscall(SYS_futex, &lock->state, 128 | 1 /* FUTEX_WAKE_PRIVATE */, 1, (void *)0, (void *)0, 0);
}

/* A descriptor and what it was when we made it: should it be looked up in another table of descriptors than the thread's (chapter J), in
 * a forked child or where the thread could not get one of its own, it must not be taken for a file that has the same number there. */
typedef struct onl_fd {
    int fd;
    dev_t device;
    ino_t inode;
} onl_fd_t;

typedef struct onl_group onl_group_t;

typedef enum onl_region_state {
    ONL_BUILDING,
    ONL_PENDING,   /* wants to be registered */
    ONL_CREATED,   /* on a range of this connection's, not visible yet */
    ONL_PUBLISHED,
    ONL_REFUSED,   /* by the agent; tried again at retry_at_ns, or on the next connection */
    ONL_PRIVATE    /* faulty, disabled or detached: never registered */
} onl_region_state_t;

/* Which memory a region lies on, to recognise the same range when an agent hands it out again. */
typedef struct onl_memory {
    int slab; /* 0: private memory */
    uint64_t device, inode, offset;
} onl_memory_t;

/* What a word of a plain or foreign group is to the switch. */
enum {
    ONL_WORD_OTHER = 0, /* not described: taken for set */
    ONL_WORD_COUNTED,   /* only additions: counters, histograms */
    ONL_WORD_LEVEL,     /* only additions, but what it counts is inherited by a fork: up-down gauges */
    ONL_WORD_SET,
    ONL_WORD_IDENTITY
};

static uint8_t onl_word_kind(unsigned metric, unsigned adds) {
    return adds ? (metric == ONLOOKER_METRIC_GAUGE ? ONL_WORD_LEVEL : ONL_WORD_COUNTED) : ONL_WORD_SET;
}

typedef struct onl_field {
    struct onl_field *next;
    char *name, *unit, *help, **labels, *array_label, **values;
    uint8_t metric, type, adds;
    uint8_t g, n; /* histograms: n > 0 */
    uint32_t slot, bytes, count, stride;
    double scale;
    uint64_t resolution_ns;
    void *out; /* the program's handle, filled by onlooker_open() */
} onl_field_t;

typedef struct onl_part {
    char *name;
    uint8_t type; /* 0 text, 1 u64, 2 address */
    uint32_t words;
} onl_part_t;

/* Any group; the guarded kinds (guarded, table) keep an image of each block in private memory, which is what commits write out. */
struct onl_group {
    onl_group_t *next;
    onlooker_region_t *region;
    const char *kind;
    uint32_t blocks, first_block, slots;
    onl_field_t *fields, **last_field;
    onlooker_table_t *table;
    /* guarded kinds only */
    uint64_t *images; /* blocks * 128 words; word 0 holds the version last committed */
    uint8_t *dirty;   /* blocks */
    uint32_t used;    /* payload words of a block that can ever be other than zero */
    onl_lock_t writer; /* held by the program from begin to commit: protects the payload of the images, and dirty */
    onl_lock_t gate;   /* held while a block is written, by the switch and by fork: protects what is in the region's memory */
    pthread_t owner;   /* of `writer`; tables only, valid while owned */
    int owned;
};

struct onlooker_guarded {
    onl_group_t group;
};

struct onlooker_table {
    onl_group_t group;
    onl_part_t parts[ONL_MAX_KEY_PARTS];
    uint32_t part_count, key_words, value_words, row_words, rows_per_block, rows_wanted, capacity;
    uint32_t *heads, *links; /* hash chains over live rows; links of free rows form a queue, so that rows rest before reuse */
    uint32_t head_mask, free_first, free_last;
    uint64_t refused;
};

struct onlooker_region_t {
    onlooker_region_t *next;
    char *name, *instance, *class_name, **labels;
    onl_group_t plain; /* or the section's foreign group */
    onl_group_t *groups, **last_group;
    onl_field_t *latest;
    uint32_t group_count, field_count;
    char fault[160]; /* first thing that was wrong with it */
    onl_region_state_t state;
    uint32_t blocks;
    size_t length;   /* of the memory in place: bytes of the blocks, rounded up to pages */
    uint64_t *base;  /* never changes */
    uint64_t *mirror; /* second mapping of the same memory, at its own address */
    uint8_t *kinds;  /* of the words of the first, unguarded group */
    size_t kind_words;
    uint64_t identity; /* of block 0; 0 while private */
    uint64_t id;
    onl_memory_t memory;
    uint64_t retreat_at_ns; /* while pending on a range of a connection that broke: when to leave it */
    uint64_t retry_at_ns;   /* while refused: when to ask again; 0: not on this connection */
    int duplicate_ms;       /* how long to wait after another `duplicate` */
    char *request; /* JSON of the create request, made at open */
    size_t request_bytes;
};

/* All of the SDK's state. `lock` protects everything here and every opened region's placement and state; the SDK's thread holds it
 * always except while it sleeps in poll. Order of locks: lock, gates, error_lock. `writer` locks are never taken under the others. */
static struct {
    onl_lock_t lock, error_lock;
    int late; /* not started yet */
    int initialised, disabled, debug, in_library, follow, detached;
    onlooker_region_t *regions;
    int thread_runs, stop, tid, deaf;
    pid_t pid; /* whose thread it is */
    pthread_t thread, ringer;
    int ringer_runs;
    int bell, heard; /* bell: futex, goes up when the thread is to look again; heard: up to where the ringer has passed it on */
    onl_fd_t connection, watch, wake_read, wake_write;
    int connected;
    int backoff_ms;
    int changed;         /* futex: goes up when a region's state changes */
    uint64_t connections, switches, last_window_ns, worst_window_ns;
    char socket_path[108];
    char refusal[32]; /* code of the last one */
    /* under error_lock */
    uint64_t errors;
    char error[256];
    void (*callback)(const char *, void *);
    void *callback_context;
    char unsaid[2048]; /* for standard error, said when `lock` is free */
    size_t unsaid_bytes;
} onl;

ONLOOKER_HIDDEN uint64_t onlooker_sink[ONLOOKER_SINK_WORDS];

/* block.md: CLOCK_BOOTTIME, ns. */
static uint64_t onl_now_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Keeps a line for standard error until onl_leave(). */
static void onl_note(const char *text) {
    size_t room;
    int n;
    onl_lock(&onl.error_lock);
    room = sizeof onl.unsaid - onl.unsaid_bytes;
    n = snprintf(onl.unsaid + onl.unsaid_bytes, room, "onlooker: %s\n", text);
    if (n > 0 && (size_t)n < room) onl.unsaid_bytes += (size_t)n;
    onl_unlock(&onl.error_lock);
}

__attribute__((format(printf, 1, 2))) static void onl_error(const char *format, ...) {
    char text[sizeof onl.error];
    void (*callback)(const char *, void *);
    void *context;
    int debug, saved = errno;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    onl_lock(&onl.error_lock);
    onl.errors++;
    memcpy(onl.error, text, sizeof text);
    callback = onl.callback;
    context = onl.callback_context;
    debug = onl.debug;
    onl_unlock(&onl.error_lock);
    if (callback) callback(text, context);
    if (debug) onl_note(text);
    errno = saved;
}

/* Releases onl.lock, and then says what there is to say: whoever reads standard error may be slow, and nobody waits for that. What it cannot take
 * at once (less than a page, so that a pipe that polls as writable takes all of it) is dropped. */
static void onl_leave(void) {
    char text[sizeof onl.unsaid];
    struct pollfd polled;
    size_t bytes;
    int saved = errno;
    onl_lock(&onl.error_lock);
    bytes = onl.unsaid_bytes;
    memcpy(text, onl.unsaid, bytes);
    onl.unsaid_bytes = 0;
    onl_unlock(&onl.error_lock);
    onl_unlock(&onl.lock);
    polled.fd = 2;
    polled.events = POLLOUT;
    polled.revents = 0;
    if (bytes && poll(&polled, 1, 0) == 1 && (polled.revents & POLLOUT)) {
        ssize_t written = write(2, text, bytes);
        (void)written; /* nothing can be said where there is no standard error */
    }
    errno = saved;
}

static size_t onl_page_bytes(void) {
    long page = sysconf(_SC_PAGESIZE);
    return page > 0 ? (size_t)page : 4096;
}

static size_t onl_round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* A number from 960 on: what the program's error callback does on our thread, with a number of the program's, must not meet ours. */
static void onl_fd_set(onl_fd_t *f, int fd) {
    struct stat st;
    int higher = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 960);
    if (higher < 0 && fd >= 0) higher = fcntl(fd, F_DUPFD_CLOEXEC, 3); /* a low limit; but never stdin, stdout or stderr */
    if (fd >= 0) (void)close(fd);
    fd = higher;
    f->fd = -1;
    if (fd < 0) return;
    if (fstat(fd, &st) != 0) {
        (void)close(fd);
        return;
    }
    f->fd = fd;
    f->device = st.st_dev;
    f->inode = st.st_ino;
}

static int onl_fd_ok(const onl_fd_t *f) {
    struct stat st;
    return f->fd >= 0 && fstat(f->fd, &st) == 0 && st.st_dev == f->device && st.st_ino == f->inode;
}

static void onl_fd_close(onl_fd_t *f) {
    if (onl_fd_ok(f)) (void)close(f->fd);
    f->fd = -1;
}

/* Makes the SDK's thread look again. Caller holds onl.lock. A futex, since that needs nothing of the caller: the thread's descriptors are in
 * a table of its own, which a program that has changed its user, its root or its limits cannot reach. The ringer (chapter J) passes it on. */
static void onl_wake(void) {
    (void)__atomic_fetch_add(&onl.bell, 1, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &onl.bell, 128 | 1, INT_MAX, (void *)0, (void *)0, 0);
}

static void onl_announce(void) {
    (void)__atomic_fetch_add(&onl.changed, 1, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &onl.changed, 128 | 1, INT_MAX, (void *)0, (void *)0, 0);
}

/* =============================================================================================== B CRC-32 ===== */

/* CRC-32/ISO-HDLC (block.md): reflected, polynomial 0xEDB88320. Here `crc` is the register itself: all ones at first, inverted at
 * the end. Tables for 8 bytes a step ("slicing by 8"): table k holds the effect of a byte that is followed by k zero bytes. */
static uint32_t onl_crc_tables[8][256];
static int onl_crc_folds;

static void onl_crc_init(void) {
    uint32_t i, k;
    for (i = 0; i < 256; i++) {
        uint32_t c = i;
        for (k = 0; k < 8; k++) c = (c >> 1) ^ (0xEDB88320u & (0u - (c & 1u)));
        onl_crc_tables[0][i] = c;
    }
    for (k = 1; k < 8; k++)
        for (i = 0; i < 256; i++) {
            uint32_t c = onl_crc_tables[k - 1][i];
            onl_crc_tables[k][i] = (c >> 8) ^ onl_crc_tables[0][c & 255u];
        }
#ifdef __x86_64__
    __builtin_cpu_init();
    onl_crc_folds = __builtin_cpu_supports("pclmul") != 0;
#endif
}

static uint32_t onl_crc_sliced(uint32_t crc, const unsigned char *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        w ^= crc;
        crc = onl_crc_tables[7][w & 255] ^ onl_crc_tables[6][w >> 8 & 255] ^ onl_crc_tables[5][w >> 16 & 255] ^
              onl_crc_tables[4][w >> 24 & 255] ^ onl_crc_tables[3][w >> 32 & 255] ^ onl_crc_tables[2][w >> 40 & 255] ^
              onl_crc_tables[1][w >> 48 & 255] ^ onl_crc_tables[0][w >> 56];
    }
    for (; n > 0; p++, n--) crc = (crc >> 8) ^ onl_crc_tables[0][(crc ^ *p) & 255u];
    return crc;
}

#ifdef __x86_64__
/* Folding with carry-less multiplication (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009).
 * A 16-byte piece followed by D bits is congruent, modulo P, to hi * (x^(D+64) mod P) + lo * (x^D mod P), where hi is its first half.
 * With reflected bits the first half is the low quadword; a product comes out shifted by one bit, and the degrees move by 32 since the
 * register stands 32 bits ahead: for the low quadword K = reflect32(x^(D+32) mod P) << 1, for the high one reflect32(x^(D-32) mod P) << 1.
 * D = 512 folds over four pieces, D = 128 over one. The tests compute these constants anew. */
#define ONL_FOLD_512_LOW 0x154442bd4
#define ONL_FOLD_512_HIGH 0x1c6e41596
#define ONL_FOLD_128_LOW 0x1751997d0
#define ONL_FOLD_128_HIGH 0x0ccaa009e

__attribute__((target("pclmul"))) static inline __m128i onl_fold(__m128i x, __m128i k, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(x, k, 0x00), high = _mm_clmulepi64_si128(x, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* n is at least 64. The last 16 folded bytes and the rest, below 16 bytes, go through the tables. */
__attribute__((target("pclmul"))) static uint32_t onl_crc_folded(uint32_t crc, const unsigned char *p, size_t n) {
    const __m128i k512 = _mm_set_epi64x(ONL_FOLD_512_HIGH, ONL_FOLD_512_LOW);
    const __m128i k128 = _mm_set_epi64x(ONL_FOLD_128_HIGH, ONL_FOLD_128_LOW);
    const __m128i *q = (const __m128i *)(const void *)p;
    unsigned char rest[16];
    __m128i a = _mm_xor_si128(_mm_loadu_si128(q), _mm_cvtsi32_si128((int)crc));
    __m128i b = _mm_loadu_si128(q + 1), c = _mm_loadu_si128(q + 2), d = _mm_loadu_si128(q + 3);
    for (q += 4, n -= 64; n >= 64; q += 4, n -= 64) {
        a = onl_fold(a, k512, _mm_loadu_si128(q));
        b = onl_fold(b, k512, _mm_loadu_si128(q + 1));
        c = onl_fold(c, k512, _mm_loadu_si128(q + 2));
        d = onl_fold(d, k512, _mm_loadu_si128(q + 3));
    }
    a = onl_fold(onl_fold(onl_fold(a, k128, b), k128, c), k128, d);
    for (; n >= 16; q++, n -= 16) a = onl_fold(a, k128, _mm_loadu_si128(q));
    _mm_storeu_si128((__m128i *)(void *)rest, a);
    return onl_crc_sliced(onl_crc_sliced(0, rest, 16), (const unsigned char *)q, n);
}
#endif

static uint32_t onl_crc32(const void *bytes, size_t n) {
#ifdef __x86_64__
    if (onl_crc_folds && n >= 64) return ~onl_crc_folded(0xFFFFFFFFu, (const unsigned char *)bytes, n);
#endif
    return ~onl_crc_sliced(0xFFFFFFFFu, (const unsigned char *)bytes, n);
}

/* ================================================================================================= C JSON ===== */

/* Writing: a growing buffer that remembers failure, up to the limit of a packet. */
typedef struct onl_text {
    char *bytes;
    size_t n, room;
    int bad;
} onl_text_t;

static void onl_put(onl_text_t *t, const char *bytes, size_t n) {
    if (t->bad) return;
    if (n > t->room - t->n) {
        size_t room = t->room ? t->room : 1024;
        char *grown;
        while (room - t->n < n) room *= 2;
        grown = room > 2 * (size_t)ONL_MAX_PACKET_BYTES ? (char *)0 : (char *)realloc(t->bytes, room);
        if (!grown) {
            t->bad = 1;
            return;
        }
        t->bytes = grown;
        t->room = room;
    }
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
}

static void onl_puts(onl_text_t *t, const char *text) { onl_put(t, text, strlen(text)); }

static void onl_put_u64(onl_text_t *t, uint64_t number) {
    char digits[24];
    onl_put(t, digits, (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number));
}

/* Length of the UTF-8 character at s (RFC 3629: no overlong forms, no surrogates), 0 if there is none. */
static size_t onl_utf8(const unsigned char *s) {
    size_t n, i;
    if (s[0] < 0x80) return s[0] ? 1 : 0;
    n = s[0] >= 0xC2 && s[0] <= 0xDF ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4 : 0;
    for (i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)) return 0;
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) return 0;
    return n;
}

/* A string; bytes that are not UTF-8 become '?', so that one odd label does not cost the whole region. */
static void onl_put_string(onl_text_t *t, const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    onl_put(t, "\"", 1);
    while (*s) {
        size_t n = onl_utf8(s);
        if (n == 0) {
            onl_put(t, "?", 1);
            s++;
            continue;
        }
        if (*s == '"' || *s == '\\') {
            onl_put(t, "\\", 1);
            onl_put(t, (const char *)s, 1);
        } else if (*s < 0x20) {
            char escape[8];
            onl_put(t, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", *s));
        } else {
            onl_put(t, (const char *)s, n);
        }
        s += n;
    }
    onl_put(t, "\"", 1);
}

static void onl_put_key(onl_text_t *t, const char *key, const char *text) {
    onl_put(t, ",\"", 2);
    onl_puts(t, key);
    onl_put(t, "\":", 2);
    if (text) onl_put_string(t, text);
}

/* The shortest decimal that reads back the same. printf writes the locale's decimal mark, whatever bytes that is: put a point there. */
static void onl_put_double(onl_text_t *t, double number) {
    char digits[64];
    const char *p;
    int precision, point = 0;
    for (precision = 0; precision < 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*e", precision, number);
        if (strtod(digits, (char **)0) == number) break;
    }
    for (p = digits; *p; p++) {
        if ((*p >= '0' && *p <= '9') || *p == '-' || *p == '+' || *p == 'e') onl_put(t, p, 1);
        else if (!point) {
            onl_put(t, ".", 1);
            point = 1;
        }
    }
}

static void onl_put_labels(onl_text_t *t, char *const *labels) {
    size_t i;
    onl_put(t, "{", 1);
    for (i = 0; labels && labels[i]; i += 2) {
        if (i) onl_put(t, ",", 1);
        onl_put_string(t, labels[i]);
        onl_put(t, ":", 1);
        onl_put_string(t, labels[i + 1]);
    }
    onl_put(t, "}", 1);
}

/* Reading: a tolerant look-up in an object of bounded depth and size; no recursion, no memory. NULL means absent or malformed. */
static const char *onl_json_space(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) p++;
    return p;
}

static const char *onl_json_string_end(const char *p, const char *end) { /* p at the opening quote; result after the closing one */
    for (p++; p < end; p++) {
        if (*p == '"') return p + 1;
        if (*p == '\\') p++;
    }
    return (const char *)0;
}

static const char *onl_json_value_end(const char *p, const char *end) {
    unsigned depth = 0;
    if (p >= end) return (const char *)0;
    if (*p == '"') return onl_json_string_end(p, end);
    if (*p != '{' && *p != '[') {
        const char *first = p;
        while (p < end && *p != ',' && *p != '}' && *p != ']' && *p != ' ' && *p != '\t' && *p != '\n' && *p != '\r') p++;
        return p > first ? p : (const char *)0;
    }
    while (p && p < end) {
        if (*p == '"') {
            p = onl_json_string_end(p, end);
            continue;
        }
        if (*p == '{' || *p == '[') {
            if (++depth > ONL_MAX_ANSWER_DEPTH) return (const char *)0;
        } else if (*p == '}' || *p == ']') {
            if (--depth == 0) return p + 1;
        }
        p++;
    }
    return (const char *)0;
}

/* Value of `key` in the object that begins at p; *value_end is set behind it. */
static const char *onl_json_get(const char *p, const char *end, const char *key, const char **value_end) {
    size_t n = strlen(key);
    p = onl_json_space(p, end);
    if (p >= end || *p != '{') return (const char *)0;
    p = onl_json_space(p + 1, end);
    while (p < end && *p == '"') {
        const char *name = p + 1, *after = onl_json_string_end(p, end), *value;
        if (!after) return (const char *)0;
        p = onl_json_space(after, end);
        if (p >= end || *p != ':') return (const char *)0;
        value = onl_json_space(p + 1, end);
        p = onl_json_value_end(value, end);
        if (!p) return (const char *)0;
        if ((size_t)(after - 1 - name) == n && memcmp(name, key, n) == 0) {
            *value_end = p;
            return value;
        }
        p = onl_json_space(p, end);
        if (p >= end || *p != ',') return (const char *)0;
        p = onl_json_space(p + 1, end);
    }
    return (const char *)0;
}

static int onl_json_u64(const char *p, const char *end, const char *key, uint64_t *number) {
    const char *value_end, *v = onl_json_get(p, end, key, &value_end);
    uint64_t n = 0;
    if (!v) return 0;
    for (; v < value_end; v++) {
        if (*v < '0' || *v > '9' || n > (UINT64_MAX - (uint64_t)(*v - '0')) / 10) return 0;
        n = n * 10 + (uint64_t)(*v - '0');
    }
    *number = n;
    return 1;
}

/* 1 true, 0 false, -1 neither. */
static int onl_json_bool(const char *p, const char *end, const char *key) {
    const char *value_end, *v = onl_json_get(p, end, key, &value_end);
    if (v && value_end - v == 4 && memcmp(v, "true", 4) == 0) return 1;
    if (v && value_end - v == 5 && memcmp(v, "false", 5) == 0) return 0;
    return -1;
}

/* For people to read: escapes are resolved where that is simple, everything that could upset a terminal becomes '?'. */
static void onl_json_text(const char *p, const char *end, const char *key, char *into, size_t room) {
    const char *value_end, *v = onl_json_get(p, end, key, &value_end);
    size_t n = 0;
    if (v && *v == '"') {
        for (v++; v < value_end - 1 && n + 1 < room; v++) {
            char c = *v;
            if (c == '\\' && v + 1 < value_end - 1) {
                c = *++v;
                if (c == 'u') {
                    c = '?';
                    v += value_end - 1 - v > 4 ? 4 : value_end - 2 - v;
                } else if (c != '"' && c != '\\' && c != '/') {
                    c = ' ';
                }
            }
            into[n++] = ((unsigned char)c < 0x20 || c == 0x7F) ? '?' : c;
        }
    }
    into[n] = 0;
}

/* ================================================================================= D builder and layout ===== */

static onlooker_region_t onl_dead_region;
static onlooker_guarded_t onl_dead_guarded;
static onlooker_table_t onl_dead_table;

__attribute__((format(printf, 2, 3))) static void onl_fault(onlooker_region_t *region, const char *format, ...) {
    va_list arguments;
    if (region == &onl_dead_region || region->fault[0]) return;
    va_start(arguments, format);
    (void)vsnprintf(region->fault, sizeof region->fault, format, arguments);
    va_end(arguments);
}

/* schema.md: metric names, and label names (no colon, not beginning with "__"). */
static int onl_name_ok(const char *name, int label) {
    size_t i;
    if (!name || !name[0] || (name[0] >= '0' && name[0] <= '9') || (label && name[0] == '_' && name[1] == '_')) return 0;
    for (i = 0; name[i]; i++) {
        char c = name[i];
        int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c == ':' && !label);
        if (!(letter || (c >= '0' && c <= '9')) || i >= ONL_MAX_NAME_BYTES) return 0;
    }
    return 1;
}

static char *onl_copy(onlooker_region_t *region, const char *text, size_t most, const char *what) {
    char *copy;
    if (!text) text = "";
    if (strlen(text) > most) {
        onl_fault(region, "%s is longer than %lu bytes: '%.40s...'", what, (unsigned long)most, text);
        text = "";
    }
    copy = strdup(text);
    if (!copy) onl_fault(region, "no memory for %s", what);
    return copy;
}

/* Adds a label to a NULL-terminated list of names and values. */
static void onl_add_label(onlooker_region_t *region, char ***labels, const char *name, const char *value) {
    size_t n = 0;
    char **grown;
    if (!onl_name_ok(name, 1)) {
        onl_fault(region, "'%.40s' is not a label name", name ? name : "(null)");
        return;
    }
    while (*labels && (*labels)[n]) n += 2;
    if (n / 2 >= ONL_MAX_LABELS) {
        onl_fault(region, "more than %u labels ('%.40s')", ONL_MAX_LABELS, name);
        return;
    }
    grown = (char **)realloc(*labels, (n + 3) * sizeof *grown);
    if (!grown) {
        onl_fault(region, "no memory for labels");
        return;
    }
    *labels = grown;
    grown[n] = onl_copy(region, name, ONL_MAX_NAME_BYTES, "label name");
    grown[n + 1] = onl_copy(region, value, ONL_MAX_LABEL_VALUE_BYTES, "label value");
    grown[n + 2] = (char *)0;
    if (!grown[n] || !grown[n + 1]) grown[n] = (char *)0;
}

static void onl_group_init(onl_group_t *group, onlooker_region_t *region, const char *kind) {
    group->region = region;
    group->kind = kind;
    group->last_field = &group->fields;
}

/* NULL when the group's region cannot take it; `slots` is how many slots the whole field needs. */
static onl_field_t *onl_new_field(onl_group_t *group, const char *name, const char *unit, const char *help, uint8_t metric, uint8_t type,
                                  uint64_t slots, uint64_t most) {
    onlooker_region_t *region = group->region;
    onl_field_t *field;
    if (region == &onl_dead_region) return (onl_field_t *)0;
    if (region->state != ONL_BUILDING) {
        onl_error("region %s is open already: field %s comes too late", region->name, name ? name : "(null)");
        return (onl_field_t *)0;
    }
    if (!onl_name_ok(name, 0)) {
        onl_fault(region, "'%.40s' is not a metric name", name ? name : "(null)");
        return (onl_field_t *)0;
    }
    if (++region->field_count > ONL_MAX_FIELDS) {
        onl_fault(region, "more than %u fields", ONL_MAX_FIELDS);
        return (onl_field_t *)0;
    }
    if (group->slots + slots > most) {
        onl_fault(region, "no room for field '%.40s': a %s holds %lu words", name,
                  group->table ? "row with its key" : group->images ? "guarded group" : "region", (unsigned long)most);
        return (onl_field_t *)0;
    }
    field = (onl_field_t *)calloc(1, sizeof *field);
    if (!field) {
        onl_fault(region, "no memory for field '%.40s'", name);
        return field;
    }
    field->name = onl_copy(region, name, ONL_MAX_NAME_BYTES, "metric name");
    field->unit = onl_copy(region, unit, ONL_MAX_UNIT_BYTES, "unit");
    field->help = onl_copy(region, help, ONL_MAX_HELP_BYTES, "help");
    field->metric = metric;
    field->type = type;
    field->scale = 1.0;
    field->slot = group->slots;
    group->slots += (uint32_t)slots;
    *group->last_field = field;
    group->last_field = &field->next;
    region->latest = field;
    return field;
}

static void onl_field_labels(onlooker_region_t *region, onl_field_t *field, va_list arguments) {
    const char *name;
    while ((name = va_arg(arguments, const char *)) != (const char *)0) {
        const char *value = va_arg(arguments, const char *);
        if (!value) {
            onl_fault(region, "label '%.40s' of '%.40s' has no value", name, field->name ? field->name : "");
            return;
        }
        onl_add_label(region, &field->labels, name, value);
    }
}

/* Plain slots: a group may grow to the region's limit. */
#define ONL_MAX_PLAIN_SLOTS ((uint64_t)ONL_MAX_REGION_BLOCKS * ONL_PLAIN_SLOTS)

static void onl_new_word(onlooker_region_t *region, void *out, uint8_t metric, uint8_t type, uint8_t adds, const char *name,
                         const char *unit, const char *help, va_list labels) {
    void *sink = onlooker_sink;
    onl_field_t *field;
    memcpy(out, &sink, sizeof sink);
    field = onl_new_field(&region->plain, name, unit, help, metric, type, 1, ONL_MAX_PLAIN_SLOTS);
    if (!field) return;
    field->adds = adds;
    field->out = out;
    onl_field_labels(region, field, labels);
}

static void onl_new_array(onlooker_region_t *region, onlooker_array_t *out, uint32_t count, uint32_t stride, const char *label,
                          uint8_t metric, uint8_t type, uint8_t adds, const char *name, const char *unit, const char *help,
                          va_list labels) {
    onl_field_t *field;
    memset(out, 0, sizeof *out);
    out->words = onlooker_sink;
    if (count == 0 || count > ONL_MAX_COLUMNS || stride == 0 || stride > ONL_PLAIN_SLOTS || !onl_name_ok(label, 1)) {
        onl_fault(region, "array '%.40s' needs a label name, 1 to %u elements and a stride of 1 to %u", name ? name : "(null)",
                  ONL_MAX_COLUMNS, ONL_PLAIN_SLOTS);
        return;
    }
    field = onl_new_field(&region->plain, name, unit, help, metric, type, (uint64_t)count * stride, ONL_MAX_PLAIN_SLOTS);
    if (!field) return;
    field->adds = adds;
    field->count = count;
    field->stride = stride;
    field->array_label = onl_copy(region, label, ONL_MAX_NAME_BYTES, "array label");
    field->out = out;
    onl_field_labels(region, field, labels);
}

#define ONL_WORD_FUNCTION(what, metric, type, adds)                                                                              \
    void onlooker_new_##what##_(onlooker_region_t *region, onlooker_##what##_t **out, const char *name, const char *unit,        \
                                const char *help, ...) {                                                                         \
        va_list labels;                                                                                                          \
        va_start(labels, help);                                                                                                  \
        onl_new_word(region, (void *)out, metric, type, adds, name, unit, help, labels);                                         \
        va_end(labels);                                                                                                          \
    }                                                                                                                            \
    void onlooker_new_##what##_array_(onlooker_region_t *region, onlooker_##what##_array_t *out, uint32_t count, uint32_t stride, \
                                      const char *label, const char *name, const char *unit, const char *help, ...) {            \
        va_list labels;                                                                                                          \
        va_start(labels, help);                                                                                                  \
        onl_new_array(region, &out->array, count, stride, label, metric, type, adds, name, unit, help, labels);                  \
        va_end(labels);                                                                                                          \
    }
ONL_WORD_FUNCTION(counter, ONLOOKER_METRIC_COUNTER, ONLOOKER_U64, 1)
ONL_WORD_FUNCTION(updown, ONLOOKER_METRIC_GAUGE, ONLOOKER_I64, 1)
ONL_WORD_FUNCTION(gauge, ONLOOKER_METRIC_GAUGE, ONLOOKER_I64, 0)
ONL_WORD_FUNCTION(gauge_f64, ONLOOKER_METRIC_GAUGE, ONLOOKER_F64, 0)

void onlooker_new_histogram_(onlooker_region_t *region, onlooker_histogram_t *out, unsigned g, unsigned n, const char *name,
                             const char *unit, const char *help, ...) {
    onl_field_t *field;
    va_list labels;
    memset(out, 0, sizeof *out);
    out->words = onlooker_sink;
    out->sum = onlooker_sink;
    out->n = 1;
    /* g <= 11 follows from the limit on buckets, and keeps the shift below in range */
    if (g > 11 || g >= n || n > 64 || onlooker_histogram_buckets(g, n) > ONL_MAX_BUCKETS) {
        onl_fault(region, "histogram '%.40s': needs 0 <= g < n <= 64 and at most %u buckets", name ? name : "(null)", ONL_MAX_BUCKETS);
        return;
    }
    out->g = (uint8_t)g;
    out->n = (uint8_t)n;
    out->buckets = onlooker_histogram_buckets(g, n);
    field = onl_new_field(&region->plain, name, unit, help, ONLOOKER_METRIC_HISTOGRAM, ONLOOKER_U64, (uint64_t)out->buckets + 1,
                          ONL_MAX_PLAIN_SLOTS);
    if (!field) return;
    field->adds = 1;
    field->g = (uint8_t)g;
    field->n = (uint8_t)n;
    field->out = out;
    va_start(labels, help);
    onl_field_labels(region, field, labels);
    va_end(labels);
}

onlooker_region_t *onlooker_region(const char *name) {
    onlooker_region_t *region = (onlooker_region_t *)calloc(1, sizeof *region);
    onl_dead_region.state = ONL_PRIVATE;
    if (!region) {
        onl_error("no memory for region %s", name ? name : "(null)");
        region = &onl_dead_region;
        onl_group_init(&region->plain, region, "plain");
        return region;
    }
    region->last_group = &region->groups;
    onl_group_init(&region->plain, region, "plain");
    region->name = onl_copy(region, name, ONL_MAX_NAME_BYTES, "region name");
    if (!onl_name_ok(region->name, 0)) onl_fault(region, "'%.40s' is not a region name (a metric name)", name ? name : "(null)");
    return region;
}

static int onl_is_open(onlooker_region_t *region, const char *what) {
    if (region->state == ONL_BUILDING) return 0;
    if (region != &onl_dead_region) onl_error("region %s is open already: %s comes too late", region->name, what);
    return 1;
}

void onlooker_region_instance(onlooker_region_t *region, const char *instance) {
    if (onl_is_open(region, "an instance")) return;
    free(region->instance);
    region->instance = onl_copy(region, instance, ONL_MAX_NAME_BYTES, "instance");
}

void onlooker_region_class(onlooker_region_t *region, const char *name) {
    if (onl_is_open(region, "a class name")) return;
    free(region->class_name);
    region->class_name = onl_copy(region, name, ONL_MAX_NAME_BYTES, "class name");
    if (!onl_name_ok(name, 0)) onl_fault(region, "'%.40s' is not a class name (a metric name)", name ? name : "(null)");
}

void onlooker_region_label(onlooker_region_t *region, const char *name, const char *value) {
    if (!onl_is_open(region, "a label")) onl_add_label(region, &region->labels, name, value);
}

void onlooker_scale(onlooker_region_t *region, double scale) {
    if (onl_is_open(region, "a scale") || !region->latest) return;
    if (scale != 0.0 && scale - scale == 0.0) region->latest->scale = scale;
    else onl_fault(region, "the scale of '%.40s' is not a number to multiply with", region->latest->name);
}

void onlooker_resolution_ns(onlooker_region_t *region, uint64_t ns) {
    if (!onl_is_open(region, "a resolution") && region->latest) region->latest->resolution_ns = ns;
}

void onlooker_values(onlooker_region_t *region, const char *const *values) {
    onl_field_t *field = region->latest;
    uint32_t i;
    if (onl_is_open(region, "label values") || !field) return;
    if (field->count == 0 || field->values) {
        onl_fault(region, "'%.40s' is not an array, or has its label values already", field->name);
        return;
    }
    field->values = (char **)calloc(field->count, sizeof *field->values);
    if (!field->values) onl_fault(region, "no memory for label values");
    for (i = 0; field->values && i < field->count; i++)
        field->values[i] = onl_copy(region, values[i], ONL_MAX_LABEL_VALUE_BYTES, "label value");
}

/* One field of the schema (schema.md, Field). `bytes_per_slot` is 8 for foreign groups, whose slots are byte offsets, else 1. */
static void onl_put_field(onl_text_t *t, const onl_field_t *field, uint32_t bytes_per_slot) {
    static const char *const metrics[] = {"counter", "gauge", "histogram", "info"};
    static const char *const types[] = {"u64", "i64", "f64", "text"};
    onl_puts(t, "{\"name\":");
    onl_put_string(t, field->name);
    onl_put_key(t, "metric", metrics[field->metric]);
    onl_put_key(t, "type", types[field->type]);
    if (field->slot) {
        onl_put_key(t, "slot", (char *)0);
        onl_put_u64(t, (uint64_t)field->slot * bytes_per_slot);
    }
    if (field->bytes) {
        onl_put_key(t, "bytes", (char *)0);
        onl_put_u64(t, field->bytes);
    }
    if (field->unit[0]) onl_put_key(t, "unit", field->unit);
    if (field->scale != 1.0) {
        onl_put_key(t, "scale", (char *)0);
        onl_put_double(t, field->scale);
    }
    if (field->help[0]) onl_put_key(t, "help", field->help);
    if (field->labels) {
        onl_put_key(t, "labels", (char *)0);
        onl_put_labels(t, field->labels);
    }
    if (field->resolution_ns) {
        onl_put_key(t, "resolution_ns", (char *)0);
        onl_put_u64(t, field->resolution_ns);
    }
    if (field->count) {
        uint32_t i;
        onl_puts(t, ",\"array\":{\"label\":");
        onl_put_string(t, field->array_label);
        onl_put_key(t, "count", (char *)0);
        onl_put_u64(t, field->count);
        onl_put_key(t, "stride", (char *)0);
        onl_put_u64(t, (uint64_t)field->stride * bytes_per_slot);
        for (i = 0; field->values && i < field->count; i++) {
            onl_puts(t, i ? "," : ",\"values\":[");
            onl_put_string(t, field->values[i]);
        }
        onl_puts(t, field->values ? "]}" : "}");
    }
    if (field->n) {
        onl_puts(t, ",\"histogram\":{\"grouping_power\":");
        onl_put_u64(t, field->g);
        onl_put_key(t, "max_power", (char *)0);
        onl_put_u64(t, field->n);
        onl_put(t, "}", 1);
    }
    onl_put(t, "}", 1);
}

static void onl_put_group(onl_text_t *t, const onl_group_t *group) {
    static const char *const parts[] = {"text", "u64", "address"};
    const onl_field_t *field;
    uint32_t i;
    onl_puts(t, "{\"kind\":");
    onl_put_string(t, group->kind);
    onl_put_key(t, "blocks", (char *)0);
    onl_put_u64(t, group->blocks);
    for (i = 0; group->table && i < group->table->part_count; i++) {
        const onl_part_t *part = &group->table->parts[i];
        onl_puts(t, i ? ",{\"name\":" : ",\"key\":[{\"name\":");
        onl_put_string(t, part->name);
        onl_put_key(t, "type", parts[part->type]);
        if (part->type == 0) {
            onl_put_key(t, "bytes", (char *)0);
            onl_put_u64(t, part->words * 8u);
        }
        onl_put(t, "}", 1);
    }
    if (group->table) onl_put(t, "]", 1);
    onl_puts(t, ",\"fields\":[");
    for (field = group->fields; field; field = field->next) {
        if (field != group->fields) onl_put(t, ",", 1);
        onl_put_field(t, field, group->kind[0] == 'f' ? 8 : 1);
    }
    onl_puts(t, "]}");
}

/* The create request (registration.md). Kept, since every new connection sends it again. */
static void onl_make_request(onlooker_region_t *region) {
    onl_text_t t;
    const onl_group_t *group;
    memset(&t, 0, sizeof t);
    onl_puts(&t, "{\"op\":\"create\"");
    onl_put_key(&t, "name", region->name);
    if (region->instance && region->instance[0]) onl_put_key(&t, "instance", region->instance);
    onl_put_key(&t, "labels", (char *)0);
    onl_put_labels(&t, region->labels);
    onl_puts(&t, ",\"schema\":{\"name\":");
    onl_put_string(&t, region->class_name ? region->class_name : region->name);
    onl_puts(&t, ",\"groups\":[");
    if (region->plain.blocks) onl_put_group(&t, &region->plain);
    for (group = region->groups; group; group = group->next) {
        if (group != region->groups || region->plain.blocks) onl_put(&t, ",", 1);
        onl_put_group(&t, group);
    }
    onl_puts(&t, "]}}");
    if (t.bad || t.n > ONL_MAX_PACKET_BYTES) {
        onl_fault(region, t.n > ONL_MAX_PACKET_BYTES || t.room ? "its schema is longer than a packet (%u bytes): make several regions"
                                                               : "no memory for its schema (up to %u bytes)",
                  ONL_MAX_PACKET_BYTES);
        free(t.bytes);
        return;
    }
    region->request = t.bytes;
    region->request_bytes = t.n;
}

/* ======================================================================================= E guarded blocks ===== */

/* ThreadSanitizer does not know fences; with it the stores themselves release, which is stronger and slower. */
#if defined(__SANITIZE_THREAD__)
#define ONL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ONL_TSAN 1
#endif
#endif
#ifdef ONL_TSAN
#define ONL_STORE_ORDER __ATOMIC_RELEASE
#define ONL_RELEASE_FENCE() ((void)0)
#else
#define ONL_STORE_ORDER __ATOMIC_RELAXED
#define ONL_RELEASE_FENCE() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

static uint64_t onl_load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
static void onl_store(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, ONL_STORE_ORDER); }

/* Commits an image (block.md, guarded block, writer). Everything is known beforehand, so the CRC is made before the block turns odd and
 * readers find it busy only while the words are stored. image[0] is the version, image[1] the time, and both are brought up to date.
 * Payload words from `used` on are zero in image and block. The caller is the only writer of the block. */
static void onl_write_block(uint64_t *block, uint64_t *image, uint32_t used, uint64_t identity, uint64_t time_ns) {
    uint32_t version = (uint32_t)image[0], next = version + 2 ? version + 2 : 2, i;
    uint64_t tail;
    image[0] = next;
    image[1] = time_ns;
    image[2] = identity;
    tail = next | (uint64_t)onl_crc32(image, ONL_BLOCK_BYTES - 8) << 32;
    onl_store(block, version | 1u);
    onl_store(block + 127, version | 1u);
    ONL_RELEASE_FENCE();
    for (i = 1; i < 3 + used; i++) onl_store(block + i, image[i]);
    ONL_RELEASE_FENCE();
    onl_store(block + 127, tail);
    onl_store(block, next);
}

/* Identity of a block of the region (block.md); none while the region is private. */
static uint64_t onl_identity(uint64_t first, uint32_t block) { return first ? first + block : 0; }

static uint64_t *onl_block(const onl_group_t *group, uint64_t *base, uint32_t block) {
    return base + (size_t)(group->first_block + block) * ONL_BLOCK_WORDS;
}

/* Writes out the dirty blocks. Caller holds `writer`, or is onlooker_open(); before that they stay dirty. */
static void onl_commit(onl_group_t *group) {
    onlooker_region_t *region = group->region;
    uint64_t now_ns = onl_now_ns();
    uint32_t b;
    if (!group->images) return;
    onl_lock(&group->gate);
    for (b = 0; region->base && b < group->blocks; b++) {
        if (!group->dirty[b]) continue;
        onl_write_block(onl_block(group, region->base, b), group->images + (size_t)b * ONL_BLOCK_WORDS, group->used,
                        onl_identity(region->identity, group->first_block + b), now_ns);
        group->dirty[b] = 0;
    }
    onl_unlock(&group->gate);
}

static void onl_append_group(onlooker_region_t *region, onl_group_t *group) {
    if (++region->group_count > ONL_MAX_GROUPS - 1) onl_fault(region, "more than %u guarded groups and tables", ONL_MAX_GROUPS - 1);
    *region->last_group = group;
    region->last_group = &group->next;
}

onlooker_guarded_t *onlooker_new_guarded(onlooker_region_t *region) {
    onlooker_guarded_t *guarded = (onlooker_guarded_t *)0;
    if (!onl_is_open(region, "a guarded group")) guarded = (onlooker_guarded_t *)calloc(1, sizeof *guarded);
    if (guarded) {
        onl_group_init(&guarded->group, region, "guarded");
        guarded->group.images = (uint64_t *)calloc(ONL_BLOCK_WORDS, 8);
        guarded->group.dirty = (uint8_t *)calloc(1, 1);
    }
    if (!guarded || !guarded->group.images || !guarded->group.dirty) {
        onl_fault(region, "no memory for a guarded group");
        onl_dead_guarded.group.region = &onl_dead_region;
        return &onl_dead_guarded;
    }
    guarded->group.blocks = 1;
    onl_append_group(region, &guarded->group);
    return guarded;
}

static int onl_guarded_kind_field(onl_group_t *group, onlooker_type_t type, onlooker_metric_t metric, uint32_t bytes, uint32_t most,
                                  const char *name, const char *unit, const char *help, va_list labels) {
    onl_field_t *field;
    if (bytes % 8 || (type == ONLOOKER_TEXT) != (bytes != 0) || (type == ONLOOKER_TEXT) != (metric == ONLOOKER_METRIC_INFO) ||
        (unsigned)type > ONLOOKER_TEXT || metric == ONLOOKER_METRIC_HISTOGRAM || (unsigned)metric > ONLOOKER_METRIC_INFO) {
        onl_fault(group->region, "field '%.40s': groups and tables hold counters and gauges of one word, and texts of 8, 16, ... bytes",
                  name ? name : "(null)");
        return -1;
    }
    field = onl_new_field(group, name, unit, help, (uint8_t)metric, (uint8_t)type, bytes ? bytes / 8 : 1, most);
    if (!field) return -1;
    field->bytes = bytes;
    if (!group->table) group->used = group->slots;
    onl_field_labels(group->region, field, labels);
    return (int)field->slot;
}

int onlooker_guarded_field_(onlooker_guarded_t *guarded, onlooker_type_t type, onlooker_metric_t metric, const char *name, const char *unit,
                            const char *help, ...) {
    int slot;
    va_list labels;
    va_start(labels, help);
    slot = onl_guarded_kind_field(&guarded->group, type, metric, 0, ONL_GUARDED_SLOTS, name, unit, help, labels);
    va_end(labels);
    return slot;
}

int onlooker_guarded_text_(onlooker_guarded_t *guarded, uint32_t bytes, const char *name, const char *help, ...) {
    int slot;
    va_list labels;
    va_start(labels, help);
    slot = onl_guarded_kind_field(&guarded->group, ONLOOKER_TEXT, ONLOOKER_METRIC_INFO, bytes, ONL_GUARDED_SLOTS, name, "", help, labels);
    va_end(labels);
    return slot;
}

void onlooker_guarded_begin(onlooker_guarded_t *guarded) { onl_lock(&guarded->group.writer); }

void onlooker_guarded_set_u64(onlooker_guarded_t *guarded, int slot, uint64_t value) {
    if (slot >= 0 && (uint32_t)slot < guarded->group.slots) guarded->group.images[3 + slot] = value;
}

void onlooker_guarded_set_i64(onlooker_guarded_t *guarded, int slot, int64_t value) {
    onlooker_guarded_set_u64(guarded, slot, (uint64_t)value);
}

void onlooker_guarded_set_f64(onlooker_guarded_t *guarded, int slot, double value) {
    uint64_t word;
    memcpy(&word, &value, 8);
    onlooker_guarded_set_u64(guarded, slot, word);
}

/* Copies a text into `bytes` bytes of words, cut at a character's end and padded with NUL. */
static void onl_set_text(uint64_t *words, uint32_t bytes, const char *text) {
    const unsigned char *s = (const unsigned char *)(text ? text : "");
    unsigned char *into = (unsigned char *)words;
    uint32_t n = 0;
    memset(words, 0, bytes);
    while (*s) {
        size_t length = onl_utf8(s);
        if (n + (length ? length : 1) > bytes) return;
        if (length) memcpy(into + n, s, length);
        else into[n] = '?';
        n += length ? (uint32_t)length : 1;
        s += length ? length : 1;
    }
}

/* Bytes of the text field that begins at `slot`; 0 if there is none. */
static uint32_t onl_text_bytes(const onl_group_t *group, int slot) {
    const onl_field_t *field;
    for (field = group->fields; field; field = field->next)
        if (slot >= 0 && field->slot == (uint32_t)slot) return field->bytes;
    return 0;
}

void onlooker_guarded_set_text(onlooker_guarded_t *guarded, int slot, const char *text) {
    uint32_t bytes = onl_text_bytes(&guarded->group, slot);
    if (bytes) onl_set_text(guarded->group.images + 3 + slot, bytes, text);
}

void onlooker_guarded_commit(onlooker_guarded_t *guarded) {
    onl_group_t *group = &guarded->group;
    if (group->images) {
        group->dirty[0] = 1;
        onl_commit(group);
    }
    onl_unlock(&group->writer);
}

void onlooker_guarded_commit_values(onlooker_guarded_t *guarded, const void *values, size_t bytes) {
    onl_group_t *group = &guarded->group;
    onlooker_guarded_begin(guarded);
    if (bytes > (size_t)group->slots * 8) bytes = (size_t)group->slots * 8;
    if (group->images) memcpy(group->images + 3, values, bytes);
    onlooker_guarded_commit(guarded);
}

/* =============================================================================================== F tables ===== */

#define ONL_NO_ROW UINT32_MAX

onlooker_table_t *onlooker_new_table(onlooker_region_t *region, uint32_t rows) {
    onlooker_table_t *table = (onlooker_table_t *)0;
    if (!onl_is_open(region, "a table")) table = (onlooker_table_t *)calloc(1, sizeof *table);
    if (!table) {
        onl_fault(region, "no memory for a table");
        onl_dead_table.group.region = &onl_dead_region;
        return &onl_dead_table;
    }
    onl_group_init(&table->group, region, "table");
    table->group.table = table;
    table->rows_wanted = rows ? rows : 1;
    onl_append_group(region, &table->group);
    return table;
}

static void onl_table_part(onlooker_table_t *table, const char *name, uint8_t type, uint32_t bytes) {
    onlooker_region_t *region = table->group.region;
    onl_part_t *part;
    if (table == &onl_dead_table || onl_is_open(region, "a key part")) return;
    if (!onl_name_ok(name, 1) || bytes == 0 || bytes % 8 || table->part_count >= ONL_MAX_KEY_PARTS ||
        table->key_words * 8 + bytes > ONL_MAX_KEY_BYTES) {
        onl_fault(region, "key part '%.40s': needs a label name and a multiple of 8 bytes; a key has at most %u parts of %u bytes together",
                  name ? name : "(null)", ONL_MAX_KEY_PARTS, ONL_MAX_KEY_BYTES);
        return;
    }
    part = &table->parts[table->part_count++];
    part->name = onl_copy(region, name, ONL_MAX_NAME_BYTES, "key part");
    part->type = type;
    part->words = bytes / 8;
    table->key_words += part->words;
}

void onlooker_table_key_text(onlooker_table_t *table, const char *name, uint32_t bytes) { onl_table_part(table, name, 0, bytes); }
void onlooker_table_key_u64(onlooker_table_t *table, const char *name) { onl_table_part(table, name, 1, 8); }
void onlooker_table_key_address(onlooker_table_t *table, const char *name) { onl_table_part(table, name, 2, 16); }

int onlooker_table_field_(onlooker_table_t *table, onlooker_type_t type, onlooker_metric_t metric, const char *name, const char *unit,
                          const char *help, ...) {
    int slot;
    va_list labels;
    va_start(labels, help);
    slot = onl_guarded_kind_field(&table->group, type, metric, 0, ONL_GUARDED_SLOTS - 1, name, unit, help, labels);
    va_end(labels);
    return slot;
}

int onlooker_table_text_(onlooker_table_t *table, uint32_t bytes, const char *name, const char *help, ...) {
    int slot;
    va_list labels;
    va_start(labels, help);
    slot = onl_guarded_kind_field(&table->group, ONLOOKER_TEXT, ONLOOKER_METRIC_INFO, bytes, ONL_GUARDED_SLOTS - 1, name, "", help, labels);
    va_end(labels);
    return slot;
}

/* table.md: row word 0 is low 32 generation, bits 32-39 state (1 live); then key, then values. */
#define ONL_ROW_LIVE ((uint64_t)1 << 32)

static uint64_t *onl_row(const onlooker_table_t *table, uint32_t row) {
    return table->group.images + (size_t)(row / table->rows_per_block) * ONL_BLOCK_WORDS + 3 +
           (size_t)(row % table->rows_per_block) * table->row_words;
}

static uint32_t onl_hash(const onlooker_table_t *table, const uint64_t *words) {
    uint64_t h = 0x9E3779B97F4A7C15u;
    uint32_t i;
    for (i = 0; i < table->key_words; i++) {
        h = (h ^ words[i]) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    return (uint32_t)h & table->head_mask;
}

static void onl_free_row(onlooker_table_t *table, uint32_t row) {
    table->links[row] = ONL_NO_ROW;
    if (table->free_last == ONL_NO_ROW) table->free_first = row;
    else table->links[table->free_last] = row;
    table->free_last = row;
}

/* Makes chains and free queue from the images. */
static void onl_table_index(onlooker_table_t *table) {
    uint32_t i;
    for (i = 0; i <= table->head_mask; i++) table->heads[i] = ONL_NO_ROW;
    table->free_first = table->free_last = ONL_NO_ROW;
    for (i = 0; i < table->capacity; i++) {
        const uint64_t *row = onl_row(table, i);
        if (row[0] & ONL_ROW_LIVE) {
            uint32_t *head = table->heads + onl_hash(table, row + 1);
            table->links[i] = *head;
            *head = i;
        } else {
            onl_free_row(table, i);
        }
    }
}

/* Fixes the table's shape; part of onlooker_open(). The blocks are committed there, with every row free. */
static void onl_table_layout(onlooker_table_t *table) {
    onl_group_t *group = &table->group;
    uint32_t heads = 1;
    table->value_words = group->slots;
    table->row_words = 1 + table->key_words + table->value_words;
    if (table->part_count == 0 || table->value_words == 0 || table->row_words > ONL_GUARDED_SLOTS) {
        onl_fault(group->region, "a table needs a key, fields, and rows of at most %u words with one for the row itself; this one has %u",
                  ONL_GUARDED_SLOTS, table->row_words);
        return;
    }
    table->rows_per_block = ONL_GUARDED_SLOTS / table->row_words;
    if (table->rows_wanted > ONL_MAX_REGION_BLOCKS * table->rows_per_block) {
        onl_fault(group->region, "a table of %u rows is larger than a region", table->rows_wanted);
        return;
    }
    group->blocks = (table->rows_wanted + table->rows_per_block - 1) / table->rows_per_block;
    group->used = table->rows_per_block * table->row_words;
    table->capacity = group->blocks * table->rows_per_block;
    while (heads < table->capacity) heads *= 2;
    table->head_mask = heads - 1;
    group->dirty = (uint8_t *)malloc(group->blocks);
    table->heads = (uint32_t *)malloc((size_t)heads * 4);
    table->links = (uint32_t *)malloc((size_t)table->capacity * 4);
    group->images = (uint64_t *)calloc((size_t)group->blocks * ONL_BLOCK_WORDS, 8);
    if (!group->dirty || !table->heads || !table->links || !group->images) {
        onl_fault(group->region, "no memory for a table of %u rows", table->capacity);
        group->blocks = 0;
        free(group->images);
        group->images = (uint64_t *)0;
        return;
    }
    memset(group->dirty, 1, group->blocks);
    onl_table_index(table);
}

onlooker_key_t onlooker_key(const onlooker_table_t *table) {
    onlooker_key_t key;
    memset(&key, 0, sizeof key);
    key.table = table;
    return key;
}

/* Words of the next part, which must be of this type; NULL and a bad key otherwise. */
static uint64_t *onl_key_part(onlooker_key_t *key, uint8_t type, uint32_t *bytes) {
    const onl_part_t *part = &key->table->parts[key->parts & (ONL_MAX_KEY_PARTS - 1)];
    uint64_t *words = key->words + key->used;
    if (key->bad || key->parts >= key->table->part_count || part->type != type) {
        key->bad = 1;
        return (uint64_t *)0;
    }
    key->parts++;
    key->used += part->words;
    *bytes = part->words * 8;
    return words;
}

void onlooker_key_text(onlooker_key_t *key, const char *text) {
    uint32_t bytes = 0;
    uint64_t *words = onl_key_part(key, 0, &bytes);
    if (words) onl_set_text(words, bytes, text);
}

void onlooker_key_u64(onlooker_key_t *key, uint64_t number) {
    uint32_t bytes = 0;
    uint64_t *words = onl_key_part(key, 1, &bytes);
    if (words) *words = number;
}

void onlooker_key_ipv6(onlooker_key_t *key, const void *sixteen_bytes) {
    uint32_t bytes = 0;
    uint64_t *words = onl_key_part(key, 2, &bytes);
    if (words) memcpy(words, sixteen_bytes, 16);
}

void onlooker_key_ipv4(onlooker_key_t *key, const void *four_bytes) {
    unsigned char mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0};
    memcpy(mapped + 12, four_bytes, 4);
    onlooker_key_ipv6(key, mapped);
}

/* The table's lock, taken once by a thread however its calls are nested in begin and commit. Returns whether to commit. */
static int onl_table_enter(onlooker_table_t *table) {
    if (__atomic_load_n(&table->group.owned, __ATOMIC_ACQUIRE)) {
        pthread_t owner;
        __atomic_load(&table->group.owner, &owner, __ATOMIC_RELAXED);
        if (pthread_equal(owner, pthread_self())) return 0;
    }
    onl_lock(&table->group.writer);
    return 1;
}

static void onl_table_leave(onlooker_table_t *table, int outermost) {
    if (!outermost) return;
    onl_commit(&table->group);
    onl_unlock(&table->group.writer);
}

void onlooker_table_begin(onlooker_table_t *table) {
    pthread_t self = pthread_self();
    if (!onl_table_enter(table)) return;
    __atomic_store(&table->group.owner, &self, __ATOMIC_RELAXED);
    __atomic_store_n(&table->group.owned, 1, __ATOMIC_RELEASE);
}

void onlooker_table_commit(onlooker_table_t *table) {
    if (onl_table_enter(table)) { /* without a begin: nothing to do */
        onl_table_leave(table, 1);
        return;
    }
    __atomic_store_n(&table->group.owned, 0, __ATOMIC_RELEASE);
    onl_table_leave(table, 1);
}

static uint32_t onl_table_search(const onlooker_table_t *table, const onlooker_key_t *key, uint32_t hash) {
    uint32_t row;
    for (row = table->heads[hash]; row != ONL_NO_ROW; row = table->links[row])
        if (memcmp(onl_row(table, row) + 1, key->words, (size_t)table->key_words * 8) == 0) break;
    return row;
}

static int onl_key_ok(const onlooker_table_t *table, const onlooker_key_t *key) {
    return table->group.images && key->table == table && !key->bad && key->parts == table->part_count;
}

static void onl_touch(onlooker_table_t *table, uint32_t row) { table->group.dirty[row / table->rows_per_block] = 1; }

onlooker_row_t onlooker_table_find(onlooker_table_t *table, const onlooker_key_t *key) {
    onlooker_row_t found = {0, 0};
    int outermost = onl_table_enter(table);
    if (onl_key_ok(table, key)) {
        uint32_t row = onl_table_search(table, key, onl_hash(table, key->words));
        if (row != ONL_NO_ROW) {
            found.index = row;
            found.generation = (uint32_t)onl_row(table, row)[0];
        }
    }
    if (outermost) onl_unlock(&table->group.writer);
    return found;
}

onlooker_row_t onlooker_table_insert(onlooker_table_t *table, const onlooker_key_t *key) {
    onlooker_row_t result = {0, 0};
    int outermost = onl_table_enter(table);
    if (onl_key_ok(table, key)) {
        uint32_t hash = onl_hash(table, key->words), index = onl_table_search(table, key, hash);
        if (index == ONL_NO_ROW && table->free_first != ONL_NO_ROW) {
            uint64_t *row;
            uint32_t generation;
            index = table->free_first;
            table->free_first = table->links[index];
            if (table->free_first == ONL_NO_ROW) table->free_last = ONL_NO_ROW;
            row = onl_row(table, index);
            generation = (uint32_t)row[0] + 1 ? (uint32_t)row[0] + 1 : 1; /* table.md: skips 0 */
            row[0] = generation | ONL_ROW_LIVE;
            memcpy(row + 1, key->words, (size_t)table->key_words * 8);
            table->links[index] = table->heads[hash];
            table->heads[hash] = index;
            onl_touch(table, index);
        }
        if (index != ONL_NO_ROW) {
            result.index = index;
            result.generation = (uint32_t)onl_row(table, index)[0];
        } else {
            table->refused++;
        }
    }
    onl_table_leave(table, outermost);
    return result;
}

/* The row's words, if it is still the same. Caller holds the table. */
static uint64_t *onl_live_row(const onlooker_table_t *table, onlooker_row_t handle) {
    uint64_t *row;
    if (!table->group.images || handle.generation == 0 || handle.index >= table->capacity) return (uint64_t *)0;
    row = onl_row(table, handle.index);
    return row[0] == (handle.generation | ONL_ROW_LIVE) ? row : (uint64_t *)0;
}

/* Changes words of a row: what = 0 sets, 1 adds to the one word. */
static int onl_row_change(onlooker_table_t *table, onlooker_row_t handle, int slot, const void *words, size_t bytes, int adds) {
    int outermost = onl_table_enter(table), done = -1;
    uint64_t *row = onl_live_row(table, handle);
    if (row && slot >= 0 && (size_t)slot * 8 + bytes <= (size_t)table->value_words * 8) {
        uint64_t *value = row + 1 + table->key_words + slot;
        if (adds) {
            uint64_t n;
            memcpy(&n, words, 8);
            *value += n;
        } else {
            memcpy(value, words, bytes);
        }
        onl_touch(table, handle.index);
        done = 0;
    }
    onl_table_leave(table, outermost);
    return done;
}

int onlooker_table_set_u64(onlooker_table_t *table, onlooker_row_t row, int slot, uint64_t value) {
    return onl_row_change(table, row, slot, &value, 8, 0);
}
int onlooker_table_set_i64(onlooker_table_t *table, onlooker_row_t row, int slot, int64_t value) {
    return onl_row_change(table, row, slot, &value, 8, 0);
}
int onlooker_table_set_f64(onlooker_table_t *table, onlooker_row_t row, int slot, double value) {
    return onl_row_change(table, row, slot, &value, 8, 0);
}
int onlooker_table_add(onlooker_table_t *table, onlooker_row_t row, int slot, uint64_t n) {
    return onl_row_change(table, row, slot, &n, 8, 1);
}
int onlooker_table_update(onlooker_table_t *table, onlooker_row_t row, const void *values, size_t bytes) {
    return onl_row_change(table, row, 0, values, bytes, 0);
}
int onlooker_table_set_text(onlooker_table_t *table, onlooker_row_t row, int slot, const char *text) {
    uint64_t words[ONL_GUARDED_SLOTS];
    uint32_t bytes = onl_text_bytes(&table->group, slot);
    if (bytes == 0 || bytes > sizeof words) return -1;
    onl_set_text(words, bytes, text);
    return onl_row_change(table, row, slot, words, bytes, 0);
}

int onlooker_table_remove(onlooker_table_t *table, onlooker_row_t handle) {
    int outermost = onl_table_enter(table), done = -1;
    uint64_t *row = onl_live_row(table, handle);
    if (row) {
        uint32_t *link = table->heads + onl_hash(table, row + 1);
        while (*link != handle.index) link = table->links + *link;
        *link = table->links[handle.index];
        memset(row, 0, (size_t)table->row_words * 8);
        row[0] = handle.generation; /* table.md: a free row keeps its generation */
        onl_free_row(table, handle.index);
        onl_touch(table, handle.index);
        done = 0;
    }
    onl_table_leave(table, outermost);
    return done;
}

uint64_t onlooker_table_refused(onlooker_table_t *table) {
    int outermost = onl_table_enter(table);
    uint64_t refused = table->refused;
    if (outermost) onl_unlock(&table->group.writer);
    return refused;
}

/* =========================================================================================== G histograms ===== */

void onlooker_histogram_range(unsigned g, unsigned n, uint32_t bucket, uint64_t *least, uint64_t *greatest) {
    (void)n;
    if (bucket < (2u << g)) {
        *least = *greatest = bucket;
    } else {
        unsigned power = (bucket >> g) - 1 + g;
        uint64_t width = (uint64_t)1 << (power - g);
        *least = ((uint64_t)1 << power) + (bucket & ((1u << g) - 1)) * width;
        *greatest = *least + (width - 1);
    }
}

void onlooker_histogram_read(const onlooker_histogram_t *histogram, uint64_t *slots) {
    uint32_t i;
    for (i = 0; i < histogram->buckets; i++) slots[i] = onl_load(histogram->words + onlooker_plain_word(histogram->first + i));
    slots[histogram->buckets] = onl_load(histogram->sum);
}

void onlooker_histogram_merge(unsigned g, unsigned n, uint64_t *into, const uint64_t *from) {
    uint32_t i;
    for (i = 0; i <= onlooker_histogram_buckets(g, n); i++) into[i] += from[i];
}

uint64_t onlooker_histogram_cumulative(unsigned g, unsigned n, const uint64_t *slots, uint64_t *le, uint64_t *count) {
    uint32_t buckets = onlooker_histogram_buckets(g, n), i = 0;
    uint64_t total = 0;
    unsigned k;
    for (k = 0; k < n; k++) {
        le[k] = ((uint64_t)1 << k) - 1;
        for (; i <= onlooker_histogram_index(g, n, le[k]); i++) total += slots[i];
        count[k] = total;
    }
    for (; i < buckets; i++) total += slots[i];
    return total;
}

/* ================================================================================ H memory and the switch ===== */

/* Private memory of a region: shared pages without a file, so that they can be mapped a second time (mremap(2): an old size of 0). */
static uint64_t *onl_map_private(size_t length, uint64_t **mirror) {
    void *memory = mmap((void *)0, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *second;
    if (memory == MAP_FAILED) return (uint64_t *)0;
    second = mremap(memory, 0, length, MREMAP_MAYMOVE);
    if (second == MAP_FAILED) {
        (void)munmap(memory, length);
        return (uint64_t *)0;
    }
    *mirror = (uint64_t *)second;
    return (uint64_t *)memory;
}

static void onl_lock_gates(onlooker_region_t *region) {
    onl_group_t *group;
    for (group = region->groups; group; group = group->next) onl_lock(&group->gate);
}

static void onl_unlock_gates(onlooker_region_t *region) {
    onl_group_t *group;
    for (group = region->groups; group; group = group->next) onl_unlock(&group->gate);
}

/* Writes the committed content of a guarded block, which stands at `from`, to `to` under a new identity; keeps its time. Nobody writes
 * to `from` meanwhile. The image's payload may hold what the program has set and not committed yet: it is left alone. */
static void onl_move_block(onl_group_t *group, uint32_t block, const uint64_t *from, uint64_t *to, uint64_t identity) {
    uint64_t *image = group->images + (size_t)block * ONL_BLOCK_WORDS, copy[ONL_BLOCK_WORDS];
    uint32_t i;
    if (image[0] == 0) return; /* never committed */
    memset(copy, 0, sizeof copy);
    copy[0] = image[0];
    for (i = 1; i < 3 + group->used; i++) copy[i] = onl_load(from + i);
    onl_write_block(to, copy, group->used, identity, copy[1]);
    image[0] = copy[0];
}

/* The switch: moves a region to the memory at `fresh`, at the addresses it has, while the program's threads go on. Lossless for additions:
 *  1. every word is copied, and the copied value remembered;
 *  2. mremap puts the fresh memory in place. That is one step for other threads: when it returns no thread can reach the old memory, since
 *     its translations are gone from every CPU;
 *  3. the old memory, seen through its second mapping, is final now: what was added to it since it was copied is added to the new words.
 *     Words that are set take the old memory's final value, unless they have been set again in the new memory.
 * Guarded blocks are written anew under their gates, so that they cannot change in between. The range must not be visible to readers, or
 * be a resumed one. Takes over both mappings; on failure (-1) everything stays as it was. Caller holds onl.lock. */
static int onl_switch(onlooker_region_t *region, uint64_t *fresh, uint64_t *fresh_mirror, const onl_memory_t *memory, uint64_t identity) {
    size_t words = region->kind_words, i;
    uint64_t began_ns, window_ns, *base = region->base, *old = region->mirror, *copied;
    onl_group_t *group;
    uint32_t b;
    void *scratch = mmap((void *)0, words * 8 + 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (scratch == MAP_FAILED) goto failed;
    copied = (uint64_t *)scratch;
    onl_lock_gates(region);
    for (group = region->groups; group; group = group->next)
        for (b = 0; b < group->blocks; b++)
            onl_move_block(group, b, onl_block(group, base, b), onl_block(group, fresh, b), onl_identity(identity, group->first_block + b));
    began_ns = onl_now_ns();
    for (i = 0; i < words; i++) {
        copied[i] = onl_load(base + i);
        if (region->kinds[i] == ONL_WORD_IDENTITY) onl_store(fresh + i, onl_identity(identity, (uint32_t)(i / ONL_BLOCK_WORDS)));
        else onl_store(fresh + i, copied[i]);
    }
    if (mremap(fresh, region->length, region->length, MREMAP_MAYMOVE | MREMAP_FIXED, base) == MAP_FAILED) {
        /* The kernel may have removed the old mapping before it failed: put the old memory back. */
        if (old && mremap(old, region->length, region->length, MREMAP_MAYMOVE | MREMAP_FIXED, base) != MAP_FAILED)
            region->mirror = (uint64_t *)0;
        onl_unlock_gates(region);
        (void)munmap(scratch, words * 8 + 8);
        goto failed;
    }
    window_ns = onl_now_ns() - began_ns;
    region->mirror = fresh_mirror;
    region->memory = *memory;
    region->identity = identity;
    for (i = 0; old && i < words; i++) {
        uint64_t last = onl_load(old + i);
        if (last == copied[i] || region->kinds[i] == ONL_WORD_IDENTITY) continue;
        if (region->kinds[i] == ONL_WORD_COUNTED || region->kinds[i] == ONL_WORD_LEVEL)
            (void)__atomic_fetch_add(base + i, last - copied[i], __ATOMIC_RELAXED);
        else
            (void)__atomic_compare_exchange_n(base + i, &copied[i], last, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
    onl_unlock_gates(region);
    if (old) (void)munmap(old, region->length);
    (void)munmap(scratch, words * 8 + 8);
    onl.switches++;
    onl.last_window_ns = window_ns;
    if (window_ns > onl.worst_window_ns) onl.worst_window_ns = window_ns;
    return 0;
failed:
    onl_error("could not move region %s to other memory (%s); it stays where it is", region->name, strerror(errno));
    (void)munmap(fresh, region->length);
    (void)munmap(fresh_mirror, region->length);
    return -1;
}

/* Back to private memory: the range will be somebody else's before long. */
static void onl_retreat(onlooker_region_t *region) {
    onl_memory_t memory;
    uint64_t *mirror = (uint64_t *)0, *fresh;
    if (!region->memory.slab) return;
    memset(&memory, 0, sizeof memory);
    fresh = onl_map_private(region->length, &mirror);
    if (!fresh) {
        onl_error("no memory to take region %s back from the agent's range (%s)", region->name, strerror(errno));
        return;
    }
    if (onl_switch(region, fresh, mirror, &memory, 0) == 0) region->id = 0;
}

/* ============================================================================================ I connection ===== */

/* When something is to be done about a region by itself: to ask again, or to retreat. 0: never. */
static uint64_t onl_due_ns(const onlooker_region_t *region) {
    if (region->state == ONL_REFUSED) return onl.connected ? region->retry_at_ns : 0;
    if (region->state == ONL_PENDING && region->memory.slab) return region->retreat_at_ns ? region->retreat_at_ns : 1;
    return 0;
}

/* Poll without holding the lock: for the program's next request to wake us, for `fd` if it is not negative, for the time to retreat or
 * to ask again for a refused region, or for timeout_ms (-1: no limit). Returns the events of `fd`. */
static short onl_sleep(int fd, short events, int timeout_ms) {
    struct pollfd polled[2];
    onlooker_region_t *region;
    uint64_t now_ns = onl_now_ns();
    int n;
    char bytes[64];
    if (!onl_fd_ok(&onl.wake_read) || !onl_fd_ok(&onl.wake_write)) {
        int ends[2];
        onl_fd_close(&onl.wake_read);
        onl_fd_close(&onl.wake_write);
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
            onl_fd_set(&onl.wake_read, ends[0]);
            onl_fd_set(&onl.wake_write, ends[1]);
        }
        onl.deaf = !onl.ringer_runs || onl.wake_read.fd < 0 || onl.wake_write.fd < 0; /* no descriptors left, or no thread */
    }
    if (onl.deaf && (timeout_ms < 0 || timeout_ms > 1000)) timeout_ms = 1000;
    for (region = onl.regions; region; region = region->next) {
        uint64_t at_ns = onl_due_ns(region);
        int left_ms;
        if (!at_ns) continue;
        left_ms = now_ns >= at_ns ? 0 : (int)((at_ns - now_ns) / 1000000u) + 1;
        if (timeout_ms < 0 || timeout_ms > left_ms) timeout_ms = left_ms;
    }
    polled[0].fd = onl.wake_read.fd;
    polled[0].events = POLLIN;
    polled[0].revents = 0;
    polled[1].fd = fd;
    polled[1].events = events;
    polled[1].revents = 0;
    onl_leave();
    n = poll(polled, 2, timeout_ms);
    onl_lock(&onl.lock);
    if (n > 0 && polled[0].revents && onl_fd_ok(&onl.wake_read))
        while (read(onl.wake_read.fd, bytes, sizeof bytes) > 0) continue;
    now_ns = onl_now_ns();
    for (region = onl.regions; region; region = region->next) {
        uint64_t at_ns = onl_due_ns(region);
        if (!at_ns || now_ns < at_ns) continue;
        if (region->state == ONL_REFUSED) {
            region->state = ONL_PENDING;
            continue;
        }
        region->retreat_at_ns = now_ns + 1000000000u; /* where it fails for lack of memory: again in a second */
        onl_retreat(region);
    }
    return n > 0 ? polled[1].revents : 0;
}

static void onl_lose_connection(void) {
    onlooker_region_t *region;
    uint64_t retreat_at_ns = onl_now_ns() + (uint64_t)ONLOOKER_RETREAT_MS * 1000000u;
    onl_fd_close(&onl.connection);
    onl.connected = 0;
    for (region = onl.regions; region; region = region->next) {
        if (region->state == ONL_PUBLISHED || region->state == ONL_CREATED) region->retreat_at_ns = retreat_at_ns;
        if (region->state != ONL_PRIVATE) region->state = ONL_PENDING;
    }
    onl_announce();
}

/* One request and its answer (registration.md). The answer's descriptors: at most one is kept, in *fd. -1: the connection is of no use
 * any more; the error has been reported unless the agent has just gone. */
static int onl_exchange(const char *request, size_t bytes, char *answer, size_t *answer_bytes, int *fd) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(8 * sizeof(int))];
    } control;
    struct msghdr message;
    struct iovec part;
    struct cmsghdr *c;
    uint64_t until_ns = onl_now_ns() + (uint64_t)ONLOOKER_ANSWER_MS * 1000000u;
    ssize_t n;
    int sent = 0, extra = 0;
    *fd = -1;
    for (;;) {
        uint64_t now_ns = onl_now_ns();
        if (onl.stop || !onl_fd_ok(&onl.connection)) return -1;
        if (!sent) {
            n = send(onl.connection.fd, request, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n == (ssize_t)bytes) {
                sent = 1;
                continue;
            }
            if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
                if (n >= 0 || errno == EMSGSIZE) onl_error("a request of %lu bytes does not fit into a packet", (unsigned long)bytes);
                return -1;
            }
        } else {
            memset(&message, 0, sizeof message);
            part.iov_base = answer;
            part.iov_len = ONL_MAX_ANSWER_BYTES;
            message.msg_iov = &part;
            message.msg_iovlen = 1;
            message.msg_control = control.space;
            message.msg_controllen = sizeof control.space;
            n = recvmsg(onl.connection.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
            if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return -1;
            if (n > 0) break;
        }
        if (now_ns >= until_ns) {
            onl_error("the agent at %s does not answer", onl.socket_path);
            return -1;
        }
        (void)onl_sleep(onl.connection.fd, sent ? POLLIN : POLLOUT, (int)((until_ns - now_ns) / 1000000u) + 1);
    }
    for (c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        size_t i;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int received;
            memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (*fd < 0) {
                *fd = received;
            } else {
                (void)close(received);
                extra = 1;
            }
        }
    }
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || extra) {
        onl_error("the agent at %s answered with %s", onl.socket_path,
                  message.msg_flags & MSG_TRUNC ? "a packet that is too long" : "more than one descriptor");
        if (*fd >= 0) (void)close(*fd);
        return -1;
    }
    *answer_bytes = (size_t)n;
    return 0;
}

/* Like onl_exchange, and looks at `ok`: 1 yes, 0 refused (reported), -1 as above. */
static int onl_ask(const char *what, const char *request, size_t bytes, char *answer, size_t *answer_bytes, int *fd) {
    const char *first, *end;
    int ok;
    if (onl_exchange(request, bytes, answer, answer_bytes, fd) != 0) return -1;
    first = onl_json_space(answer, answer + *answer_bytes);
    end = onl_json_value_end(first, answer + *answer_bytes);
    ok = end && onl_json_space(end, answer + *answer_bytes) == answer + *answer_bytes /* one whole value */
             ? onl_json_bool(first, end, "ok")
             : -1;
    if (ok < 0) {
        onl_error("the agent at %s answered a %s with something else than the protocol's JSON", onl.socket_path, what);
    } else if (ok == 0) {
        char *code = onl.refusal, message[160];
        onl_json_text(answer, answer + *answer_bytes, "error", code, sizeof onl.refusal);
        onl_json_text(answer, answer + *answer_bytes, "message", message, sizeof message);
        onl_error("the agent refused a %s (%s): %s", what, code, message);
    }
    if (ok <= 0 && *fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
    return ok;
}

/* Connects and says hello. 0, or -1. Only errors that somebody can mend are reported: no agent is not an error. */
static int onl_connect(int *reached) {
    static const char hello[] = "{\"op\":\"hello\",\"version\":1,\"sdk\":\"" ONLOOKER_SDK "\"}";
    static char answer[ONL_MAX_ANSWER_BYTES];
    struct sockaddr_un address;
    socklen_t length = sizeof address;
    size_t answer_bytes, n = strlen(onl.socket_path);
    uint64_t version = 0;
    int fd, room = 2 * (int)ONL_MAX_PACKET_BYTES;
    *reached = 0;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, onl.socket_path, n);
    if (address.sun_path[0] == '@') { /* an abstract address: no file */
        address.sun_path[0] = 0;
        length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    }
    onl_fd_set(&onl.connection, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (onl.connection.fd < 0) {
        onl_error("no socket to reach the agent (%s)", strerror(errno));
        return -1;
    }
    (void)setsockopt(onl.connection.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (connect(onl.connection.fd, (struct sockaddr *)&address, length) != 0) {
        if (errno != ENOENT && errno != ECONNREFUSED && errno != ENOTDIR && errno != EAGAIN && errno != EINTR)
            onl_error("cannot connect to the agent at %s (%s)", onl.socket_path, strerror(errno));
        onl_lose_connection();
        return -1;
    }
    *reached = 1;
    if (onl_ask("hello", hello, sizeof hello - 1, answer, &answer_bytes, &fd) != 1) {
        onl_lose_connection();
        return -1;
    }
    if (fd >= 0) (void)close(fd);
    if (!onl_json_u64(answer, answer + answer_bytes, "version", &version) || version != 1) {
        onl_error("the agent at %s speaks version %llu of the protocol, this SDK version 1", onl.socket_path, (unsigned long long)version);
        onl_lose_connection();
        return -1;
    }
    onl.connected = 1;
    onl.connections++;
    return 0;
}

/* What a descriptor from the agent is: a memfd that cannot shrink, or a BPF array (which has a fixed size). Anything else could be
 * truncated under us, which kills. Returns NULL, or what is wrong. */
static const char *onl_slab_fault(int fd, uint64_t end, onl_memory_t *memory) {
    struct stat st;
    char path[64], target[64], info[512];
    ssize_t n;
    int seals;
    if (fstat(fd, &st) != 0) return "a descriptor that cannot be examined";
    memory->slab = 1;
    memory->device = (uint64_t)st.st_dev;
    memory->inode = (uint64_t)st.st_ino;
    seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0) {
        if (!S_ISREG(st.st_mode) || !(seals & F_SEAL_SHRINK)) return "a memfd that is not sealed against shrinking";
        return st.st_size < 0 || (uint64_t)st.st_size < end ? "a slab that is shorter than the range" : (const char *)0;
    }
    (void)snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    if (strcmp(target, "anon_inode:bpf-map") != 0) return "a descriptor that is neither a memfd nor a BPF map";
    (void)snprintf(path, sizeof path, "/proc/thread-self/fdinfo/%d", fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, info, sizeof info - 1);
    if (fd >= 0) (void)close(fd);
    info[n > 0 ? n : 0] = 0;
    if (!strstr(info, "map_id:")) return "a BPF map without an id";
    memory->device = UINT64_MAX; /* all BPF maps share one inode */
    memory->inode = strtoull(strstr(info, "map_id:") + 7, (char **)0, 10);
    return (const char *)0;
}

/* Takes the range that a create was answered with. 1: the region lies on it; 0: it stays where it is (reported). */
static int onl_take_range(onlooker_region_t *region, const char *answer, size_t answer_bytes, int fd, int *resumed) {
    const char *end = answer + answer_bytes, *value_end = end, *range = onl_json_get(answer, end, "region", &value_end), *fault;
    uint64_t id = 0, generation = 0, offset = 0, bytes = 0, mapped = 0, identity;
    onl_memory_t memory, *present = &region->memory;
    void *fresh, *mirror;
    memset(&memory, 0, sizeof memory);
    if (!range || !onl_json_u64(range, value_end, "id", &id) || !onl_json_u64(range, value_end, "generation", &generation) ||
        !onl_json_u64(range, value_end, "offset", &offset) || !onl_json_u64(range, value_end, "bytes", &bytes) ||
        !onl_json_u64(range, value_end, "mapped_bytes", &mapped) || fd < 0) {
        fault = "an incomplete answer";
    } else if (id == 0 || id > 0xFFFFFF || generation == 0 || generation > 0xFFFFFF) {
        fault = "a region id or generation outside 24 bits";
    } else if (bytes != (uint64_t)region->blocks * ONL_BLOCK_BYTES || mapped < region->length) {
        fault = "a range of another length";
    } else if (offset % onl_page_bytes() || offset > ((uint64_t)1 << 46)) {
        fault = "an offset that is not on a page of this machine";
    } else {
        fault = onl_slab_fault(fd, offset + region->length, &memory);
    }
    memory.offset = offset;
    identity = id << 16 | generation << 40;
    *resumed = range && onl_json_bool(range, value_end, "resumed") == 1;
    if (!fault && present->slab && present->device == memory.device && present->inode == memory.inode &&
        offset < present->offset + region->length && present->offset < offset + region->length) {
        /* The range the region lies on still. Right if resumed; copying it onto itself would count twice. */
        if (*resumed && offset == present->offset && identity == region->identity) {
            region->id = id;
            return 1;
        }
        fault = "the range that the region lies on, as a new one";
    }
    if (fault) {
        onl_error("the agent at %s answered the create of region %s with %s", onl.socket_path, region->name, fault);
        return 0;
    }
    fresh = mmap((void *)0, region->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    mirror = fresh == MAP_FAILED ? MAP_FAILED : mmap((void *)0, region->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (mirror == MAP_FAILED) {
        onl_error("cannot map the range of region %s (%s)", region->name, strerror(errno));
        if (fresh != MAP_FAILED) (void)munmap(fresh, region->length);
        return 0;
    }
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
    /* Makes the pages now: a lack of memory is an error here and would be a SIGBUS later. Kernels before 5.14 do not know it. */
    if (madvise(fresh, region->length, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        onl_error("no memory behind the range of region %s (%s)", region->name, strerror(errno));
        (void)munmap(fresh, region->length);
        (void)munmap(mirror, region->length);
        return 0;
    }
    if (onl_switch(region, (uint64_t *)fresh, (uint64_t *)mirror, &memory, identity) != 0) return 0;
    region->id = id;
    return 1;
}

/* The agent said no: back to private memory. Reasons that can pass are asked about again. */
static void onl_refused(onlooker_region_t *region) {
    int after_ms = strcmp(onl.refusal, "quota") == 0 || strcmp(onl.refusal, "internal") == 0 ? ONLOOKER_REFUSED_MS : 0;
    if (strcmp(onl.refusal, "duplicate") == 0) {
        after_ms = region->duplicate_ms ? region->duplicate_ms : ONLOOKER_DUPLICATE_MS;
        region->duplicate_ms = after_ms * 2 < ONLOOKER_REFUSED_MS ? after_ms * 2 : ONLOOKER_REFUSED_MS;
    }
    region->retry_at_ns = after_ms ? onl_now_ns() + (uint64_t)after_ms * 1000000u : 0;
    region->state = ONL_REFUSED;
    onl_retreat(region);
}

/* Creates and publishes. -1: the connection is of no use any more. */
static int onl_register(onlooker_region_t *region) {
    static char answer[ONL_MAX_ANSWER_BYTES];
    char request[64];
    size_t answer_bytes;
    int fd, resumed = 0, taken, asked = onl_ask("create", region->request, region->request_bytes, answer, &answer_bytes, &fd);
    if (asked < 0) return -1;
    if (asked == 0) {
        onl_refused(region);
        onl_announce();
        return 0;
    }
    taken = onl_take_range(region, answer, answer_bytes, fd, &resumed);
    if (fd >= 0) (void)close(fd);
    if (!taken) return -1;
    region->state = ONL_CREATED;
    if (!resumed) {
        int n = snprintf(request, sizeof request, "{\"op\":\"publish\",\"region\":%llu}", (unsigned long long)region->id);
        asked = onl_ask("publish", request, (size_t)n, answer, &answer_bytes, &fd);
        if (fd >= 0) (void)close(fd);
        if (asked < 0) return -1;
    }
    if (asked == 1) {
        region->state = ONL_PUBLISHED;
        region->duplicate_ms = 0;
    } else {
        onl_refused(region);
    }
    onl_announce();
    return 0;
}

/* ================================================================================================ J thread ===== */

/* Watches for the socket to appear: its directory, or the nearest parent that exists; *name is what must appear there. */
static int onl_open_watch(char *name, size_t room) {
    char path[sizeof onl.socket_path];
    int fd;
    if (onl.socket_path[0] != '/') return -1;
    onl_fd_set(&onl.watch, inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (onl.watch.fd < 0) return -1;
    memcpy(path, onl.socket_path, sizeof path);
    for (;;) {
        char *slash = strrchr(path, '/');
        if (!slash) break;
        (void)snprintf(name, room, "%s", slash + 1);
        slash[slash == path ? 1 : 0] = 0;
        fd = inotify_add_watch(onl.watch.fd, path, IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR);
        if (fd >= 0) return 0;
        if ((errno != ENOENT && errno != ENOTDIR) || path[1] == 0) break;
    }
    onl_fd_close(&onl.watch);
    return -1;
}

static int onl_watch_fired(const char *name) {
    union {
        struct inotify_event event;
        char bytes[4096];
    } buffer;
    int fired = 0;
    for (;;) {
        ssize_t n = onl_fd_ok(&onl.watch) ? read(onl.watch.fd, buffer.bytes, sizeof buffer.bytes) : 0, at = 0;
        if (n == 0) return 1; /* closed under us: watch anew */
        if (n < 0) return fired;
        while (at + (ssize_t)sizeof(struct inotify_event) <= n) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)(buffer.bytes + at);
            if (!(event->mask & (IN_CREATE | IN_MOVED_TO)) || (event->len && strcmp(event->name, name) == 0)) fired = 1;
            at += (ssize_t)sizeof(struct inotify_event) + (ssize_t)event->len;
        }
    }
}

/* Waits before the next attempt to connect: for backoff_ms, or until the socket appears. */
static void onl_pause(int connect_failed) {
    static char name[sizeof onl.socket_path];
    uint64_t until_ns = onl_now_ns() + (uint64_t)onl.backoff_ms * 1000000u, now_ns;
    if (connect_failed && onl.watch.fd < 0 && onl_open_watch(name, sizeof name) == 0) return; /* it may just have appeared: try once more */
    while (!onl.stop && (now_ns = onl_now_ns()) < until_ns) {
        if (onl_sleep(onl.watch.fd, POLLIN, (int)((until_ns - now_ns) / 1000000u) + 1) && onl_watch_fired(name)) {
            onl_fd_close(&onl.watch);
            onl.backoff_ms = 0; /* it listens in a moment: begin with short pauses again */
            return;
        }
    }
}

/* Gives the thread a table of descriptors of its own, empty but for stderr where that is asked for: nothing of ours is then inherited by a
 * fork, shows up among the program's descriptors, or can be closed by it (daemons close all they find); and the thread holds none of the
 * program's open. poll(2) could not do without: woken, it looks its numbers up again, and may find other files under them. */
#ifndef ONL_SYS_CLOSE_RANGE
#define ONL_SYS_CLOSE_RANGE 436 /* Linux 5.9 */
#endif
static void onl_own_descriptors(void) {
#ifndef ONL_TSAN /* which takes numbers for files */
    const unsigned unshare_first = 2; /* CLOSE_RANGE_UNSHARE */
    int fd, keep = onl.debug ? 2 : -1;
    long most = sysconf(_SC_OPEN_MAX);
    if (syscall(ONL_SYS_CLOSE_RANGE, keep + 1, ~0u, unshare_first) == 0) {
        for (fd = 0; fd < keep; fd++) (void)close(fd);
    } else if (syscall(SYS_unshare, 0x400 /* CLONE_FILES */) == 0) {
        for (fd = 0; fd < (most > 0 && most < 65536 ? most : 65536); fd++)
            if (fd != keep) (void)close(fd);
    }
#endif
}

/* Starts a thread which, as the caller, has every signal blocked. 0, or an error. */
static int onl_new_thread(pthread_t *thread, void *(*body)(void *), size_t stack_bytes) {
    pthread_attr_t attributes;
    int error;
    (void)pthread_attr_init(&attributes);
#if !defined(ONL_TSAN) && !defined(__SANITIZE_ADDRESS__)
    (void)pthread_attr_setstacksize(&attributes, stack_bytes);
#else
    (void)stack_bytes;
#endif
    error = pthread_create(thread, &attributes, body, (void *)0);
    if (error == EINVAL) error = pthread_create(thread, (pthread_attr_t *)0, body, (void *)0); /* much thread-local memory */
    (void)pthread_attr_destroy(&attributes);
    return error;
}

/* Waits for the futex, which poll cannot do, and tells the SDK's thread through a pipe in the table of descriptors that both have. A signal
 * would do without this thread, but a signal is the program's as well: signalfd takes those that were sent to the process, wakes for each
 * signal of any thread, and loses what is pending when the program sets that signal to be ignored. */
static void *onl_ring(void *unused) {
    (void)unused;
    (void)pthread_setname_np(pthread_self(), "onlooker-bell");
    onl_lock(&onl.lock);
    for (;;) {
        int heard = onl.heard;
        if (onl.bell == heard) {
            if (onl.stop) break; /* and that has been passed on */
            onl_unlock(&onl.lock);
            (void)syscall(SYS_futex, &onl.bell, 128 | 0, heard, (void *)0, (void *)0, 0);
            onl_lock(&onl.lock);
            continue;
        }
        onl.heard = onl.bell;
        if (onl_fd_ok(&onl.wake_write)) {
            ssize_t written = write(onl.wake_write.fd, "", 1);
            (void)written; /* full means awake */
        }
    }
    onl_unlock(&onl.lock);
    return (void *)0;
}

static void *onl_run(void *unused) {
    int reached = 0, ringer_runs;
    uint64_t settled_ns;
    (void)unused;
    (void)pthread_setname_np(pthread_self(), "onlooker");
    onl_own_descriptors();
    ringer_runs = onl_new_thread(&onl.ringer, onl_ring, 32 * 1024) == 0;
    onl_lock(&onl.lock);
    onl.ringer_runs = ringer_runs;
    onl.tid = (int)syscall(SYS_gettid);
    while (!onl.stop) {
        onlooker_region_t *region;
        if (!onl.connected) {
            if (onl.backoff_ms) onl_pause(!reached);
            if (onl.stop) break;
            onl.backoff_ms = onl.backoff_ms == 0 ? 5 : onl.backoff_ms * 2 > ONLOOKER_BACKOFF_MS ? ONLOOKER_BACKOFF_MS : onl.backoff_ms * 2;
            if (onl_connect(&reached) != 0) continue;
            onl_fd_close(&onl.watch);
        }
        for (region = onl.regions; region && region->state != ONL_PENDING; region = region->next) continue;
        if (region) {
            if (onl_register(region) != 0) onl_lose_connection();
            continue;
        }
        settled_ns = onl_now_ns(); /* every region had its answer */
        if (onl_sleep(onl.connection.fd, POLLIN, -1)) {
            char byte;
            if (onl_fd_ok(&onl.connection) && recv(onl.connection.fd, &byte, 1, MSG_DONTWAIT) > 0)
                onl_error("the agent at %s sent a packet that nobody asked for", onl.socket_path);
            onl_lose_connection();
        } else if (!onl_fd_ok(&onl.connection)) {
            onl_lose_connection();
        }
        /* An agent that was in order for a while is asked again at once; one that comes and goes quickly, after growing pauses. */
        if (onl_now_ns() - settled_ns > 1000000000u) onl.backoff_ms = 0;
    }
    onl_fd_close(&onl.watch);
    onl_fd_close(&onl.connection);
    onl_fd_close(&onl.wake_read);
    onl_fd_close(&onl.wake_write);
    onl.connected = 0;
    onl_wake();
    onl_leave();
    if (ringer_runs) (void)pthread_join(onl.ringer, (void **)0);
    return (void *)0;
}

/* Caller holds onl.lock. */
static void onl_start_thread(void) {
    sigset_t all, before;
    int error;
    if (onl.thread_runs || onl.disabled || onl.detached || onl.late) return;
    onl.pid = getpid();
    onl.tid = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited: no signal of the program's is handled on our thread */
    error = onl_new_thread(&onl.thread, onl_run, 128 * 1024);
    (void)pthread_sigmask(SIG_SETMASK, &before, (sigset_t *)0);
    if (error) onl_error("cannot start the SDK's thread (%s): nothing is published until another region is opened", strerror(error));
    else onl.thread_runs = 1;
}

/* ================================================================================================== K fork ===== */

/* Before a fork: everything of ours stands still, so that the child inherits it whole. */
static void onl_fork_prepare(void) {
    onlooker_region_t *region;
    onl_lock(&onl.lock);
    for (region = onl.regions; region; region = region->next) onl_lock_gates(region);
    onl_lock(&onl.error_lock);
}

static void onl_fork_parent(void) {
    onlooker_region_t *region;
    onl_unlock(&onl.error_lock);
    for (region = onl.regions; region; region = region->next) onl_unlock_gates(region);
    onl_unlock(&onl.lock);
}

/* A guarded block as its last commit left it, from memory that the parent may be writing to by now (block.md, reader). */
static int onl_read_block(const uint64_t *block, uint64_t *copy) {
    int attempt;
    uint32_t i;
    for (attempt = 0; attempt < 1000; attempt++) {
        for (i = 0; i < ONL_BLOCK_WORDS; i++) copy[i] = __atomic_load_n(block + i, __ATOMIC_ACQUIRE);
        if (!(copy[0] & 1) && copy[127] == ((uint32_t)copy[0] | (uint64_t)onl_crc32(copy, ONL_BLOCK_BYTES - 8) << 32)) return 1;
    }
    return 0;
}

/* In the child: a copy of its own at the same addresses. Only this thread exists. No malloc here. */
static void onl_fork_copy(onlooker_region_t *region) {
    uint64_t *fresh, *mirror = (uint64_t *)0;
    onl_group_t *group;
    size_t i;
    uint32_t b;
    if (!region->mirror) return; /* already the child's: ordinary memory since an earlier fork */
    if (onl.follow || onl.late) {
        fresh = onl_map_private(region->length, &mirror);
    } else {
        fresh = (uint64_t *)mmap((void *)0, region->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (fresh == (uint64_t *)MAP_FAILED) fresh = (uint64_t *)0;
    }
    if (!fresh) {
        onl_error("no memory for a forked child's copy of region %s: it shares its parent's", region->name);
        return;
    }
    for (i = 0; i < region->kind_words; i++) {
        uint64_t word = region->kinds[i] == ONL_WORD_IDENTITY ? 0 : onl_load(region->base + i);
        if (onl.follow == ONLOOKER_FORK_FRESH && region->kinds[i] == ONL_WORD_COUNTED) word = 0;
        onl_store(fresh + i, word);
    }
    for (group = region->groups; group; group = group->next) {
        for (b = 0; group->images && b < group->blocks; b++) {
            uint64_t copy[ONL_BLOCK_WORDS], *image = group->images + (size_t)b * ONL_BLOCK_WORDS;
            if (image[0] == 0) continue;
            /* What some thread had set and not committed is not part of the child. */
            if (onl_read_block(onl_block(group, region->base, b), copy)) memcpy(image + 1, copy + 1, 126 * 8);
            onl_write_block(onl_block(group, fresh, b), image, group->used, 0, image[1]);
        }
        if (group->table && group->images) onl_table_index(group->table);
    }
    if (mremap(fresh, region->length, region->length, MREMAP_MAYMOVE | MREMAP_FIXED, region->base) == MAP_FAILED) {
        onl_error("cannot put a forked child's copy of region %s in place (%s)", region->name, strerror(errno));
        return;
    }
    (void)munmap(region->mirror, region->length);
    region->mirror = mirror;
    region->identity = region->id = 0;
    memset(&region->memory, 0, sizeof region->memory);
}

static void onl_fork_child(void) {
    static const onl_lock_t open_lock = {0};
    onlooker_region_t *region;
    onl_group_t *group;
    onl.error_lock = open_lock;
    onl.unsaid_bytes = 0; /* the parent says it */
    onl_fd_close(&onl.connection);
    onl_fd_close(&onl.watch);
    onl_fd_close(&onl.wake_read);
    onl_fd_close(&onl.wake_write);
    onl.connected = onl.thread_runs = onl.ringer_runs = onl.backoff_ms = onl.deaf = 0;
    onl.detached = !onl.follow && !onl.late; /* a program that daemonises first and starts then is not a child that comes late */
    for (region = onl.regions; region; region = region->next) {
        for (group = region->groups; group; group = group->next) {
            group->gate = group->writer = open_lock;
            group->owned = 0;
            if (group->dirty) memset(group->dirty, 0, group->blocks);
        }
        onl_fork_copy(region);
        if (region->state != ONL_PRIVATE) region->state = ONL_PENDING;
    }
    onl.lock = open_lock;
    onl_lock(&onl.lock);
    if (onl.regions) onl_start_thread();
    onl_leave();
}

void onlooker_follow_fork(int mode) {
    onlooker_region_t *region;
    onl_lock(&onl.lock);
    onl.follow = mode;
    if (mode && onl.detached) { /* a child that joins in late: give its copies a second mapping, as the switch needs it */
        onl.detached = 0;
        for (region = onl.regions; region; region = region->next) {
            onl_memory_t memory;
            uint64_t *mirror = (uint64_t *)0, *fresh;
            memset(&memory, 0, sizeof memory);
            if (region->mirror) continue;
            fresh = onl_map_private(region->length, &mirror);
            if (!fresh || onl_switch(region, fresh, mirror, &memory, 0) != 0) region->state = ONL_PRIVATE;
        }
        if (onl.regions) onl_start_thread();
    }
    onl_leave();
}

/* =============================================================================================== L section ===== */

extern unsigned char __start_onlooker_data[] __attribute__((weak, visibility("hidden")));
extern unsigned char __stop_onlooker_data[] __attribute__((weak, visibility("hidden")));
extern const onlooker_descriptor_t *const __start_onlooker_fields[] __attribute__((weak, visibility("hidden")));
extern const onlooker_descriptor_t *const __stop_onlooker_fields[] __attribute__((weak, visibility("hidden")));

/* Once, before anything else. Caller holds onl.lock. */
static void onl_init(void) {
    const char *path = secure_getenv("ONLOOKER_SOCKET"), *disable = secure_getenv("ONLOOKER_DISABLE");
    if (onl.initialised) return;
    onl.initialised = 1;
#ifdef ONLOOKER_START_LATE
    onl.late = 1;
#endif
    onl.connection.fd = onl.watch.fd = onl.wake_read.fd = onl.wake_write.fd = -1;
    onl.debug = secure_getenv("ONLOOKER_DEBUG") != (char *)0;
    onl.disabled = disable && disable[0] && strcmp(disable, "0") != 0;
    onl_crc_init();
    if (!path || !path[0]) path = ONLOOKER_SOCKET_PATH;
    if (strlen(path) >= sizeof onl.socket_path) {
        onl_error("ONLOOKER_SOCKET is longer than %lu bytes: nothing is published", (unsigned long)sizeof onl.socket_path - 1);
        onl.disabled = 1;
    } else {
        memcpy(onl.socket_path, path, strlen(path) + 1);
    }
    if (pthread_atfork(onl_fork_prepare, onl_fork_parent, onl_fork_child) != 0) {
        onl_error("no memory to watch for forks: nothing is published");
        onl.disabled = 1;
    }
}

/* Puts a laid-out region on the list; the thread does the rest. Caller holds onl.lock. */
static void onl_enlist(onlooker_region_t *region) {
    onlooker_region_t **last = &onl.regions;
    while (*last) last = &(*last)->next;
    if (region->fault[0]) onl_error("region %s is kept private: %s", region->name ? region->name : "", region->fault);
    region->state = region->fault[0] || onl.disabled ? ONL_PRIVATE : ONL_PENDING;
    *last = region;
    if (region->state == ONL_PENDING) {
        onl_start_thread();
        onl_wake();
    }
}

/* Which file this code was loaded from: its path, or "" for the program itself. */
typedef struct onl_module {
    uintptr_t address;
    char path[256];
} onl_module_t;

static int onl_find_module(struct dl_phdr_info *info, size_t size, void *context) {
    onl_module_t *module = (onl_module_t *)context;
    int i;
    (void)size;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && module->address - (info->dlpi_addr + header->p_vaddr) < header->p_memsz) {
            (void)snprintf(module->path, sizeof module->path, "%s", info->dlpi_name ? info->dlpi_name : "");
            return 1;
        }
    }
    return 0;
}

/* Name of the section's region: the program's or the library's, as a metric name: libshop.so.3 becomes libshop. */
static void onl_section_name(char *name, size_t room, const char *path) {
#ifdef ONLOOKER_SECTION_NAME
    (void)path;
    (void)snprintf(name, room, "%s", ONLOOKER_SECTION_NAME);
#else
    const char *slash = strrchr(path, '/');
    size_t i;
    (void)snprintf(name, room, "%.*s", (int)room - 1, path[0] ? (slash ? slash + 1 : path) : program_invocation_short_name);
    for (i = 0; name[i]; i++) {
        int digit = name[i] >= '0' && name[i] <= '9';
        if (name[i] == '.' && path[0]) name[i] = 0;
        else if (!(name[i] == '_' || (digit && i) || (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z')))
            name[i] = '_';
        if (!name[i]) break;
    }
#endif
    if (!name[0]) (void)snprintf(name, room, "program");
}

/* Makes fields of the section's descriptors. */
static void onl_section_fields(onlooker_region_t *region) {
    const onlooker_descriptor_t *const *at;
    for (at = &__start_onlooker_fields[0]; at < &__stop_onlooker_fields[0]; at++) {
        const onlooker_descriptor_t *descriptor = *at;
        uint32_t words, i;
        size_t offset;
        onl_field_t *field;
        if (!descriptor) continue; /* room that a sanitizer left */
        words = descriptor->count ? descriptor->count : 1;
        offset = (size_t)((unsigned char *)descriptor->address - __start_onlooker_data);
        if (offset % 8 || offset >= region->length || region->length - offset < (size_t)words * 8) {
            onl_error("variable %s is not in its section (a copy relocation? use -fPIC): it is not published", descriptor->name);
            continue;
        }
        field = onl_new_field(&region->plain, descriptor->name, descriptor->unit, descriptor->text[0], descriptor->metric, descriptor->type,
                              0, 0);
        if (!field) continue;
        field->slot = (uint32_t)(offset / 8);
        field->scale = descriptor->scale;
        if (descriptor->count) {
            field->count = descriptor->count;
            field->stride = 1;
            field->array_label = onl_copy(region, descriptor->array_label, ONL_MAX_NAME_BYTES, "array label");
        }
        for (i = 1; descriptor->text[i]; i += 2) {
            if (!descriptor->text[i + 1]) {
                onl_fault(region, "label '%.40s' of '%.40s' has no value", descriptor->text[i], descriptor->name);
                break;
            }
            onl_add_label(region, &field->labels, descriptor->text[i], descriptor->text[i + 1]);
        }
        memset(region->kinds + field->slot, onl_word_kind(descriptor->metric, descriptor->adds), words);
    }
}

/* The section's pages move onto memory that can be mapped twice. This first move is not the lossless one: it runs before main, and before
 * constructors of a lower priority, when no other thread changes our counters yet. */
static int onl_section_place(onlooker_region_t *region) {
    uint64_t *mirror = (uint64_t *)0, *fresh = onl_map_private(region->length, &mirror);
    if (!fresh) return -1;
    memcpy(fresh, region->base, region->length);
    if (mremap(fresh, region->length, region->length, MREMAP_MAYMOVE | MREMAP_FIXED, region->base) == MAP_FAILED) {
        (void)munmap(fresh, region->length);
        (void)munmap(mirror, region->length);
        return -1;
    }
    region->mirror = mirror;
    return 0;
}

__attribute__((constructor(101))) static void onl_constructor(void) {
    char name[ONL_MAX_NAME_BYTES + 1];
    onl_module_t module;
    onlooker_region_t *region;
    size_t length = (size_t)(__stop_onlooker_data - __start_onlooker_data), page = onl_page_bytes();
    memset(&module, 0, sizeof module);
    module.address = (uintptr_t)&onl;
    (void)dl_iterate_phdr(onl_find_module, &module);
    onl_lock(&onl.lock);
    onl_init();
    onl.in_library = module.path[0] != 0;
    if (length == 0 || &__start_onlooker_fields[0] == &__stop_onlooker_fields[0] || onl.disabled) goto done;
    onl_section_name(name, sizeof name, module.path);
    if ((uintptr_t)__start_onlooker_data % page || length % page) {
        /* A mistake of the build, which nobody could see otherwise: say so even without ONLOOKER_DEBUG. */
        onl_error("section onlooker_data of %s does not own its pages (%lu bytes, pages of %lu): its counters are not published. "
                  "Compile the files that use ONLOOKER_COUNTER without -flto, or make the counters with onlooker_region().",
                  name, (unsigned long)length, (unsigned long)page);
        if (!onl.debug) onl_note(onl.error);
        goto done;
    }
    region = onlooker_region(name);
    if (region == &onl_dead_region) goto done;
    region->plain.kind = "foreign";
    region->length = length;
    region->blocks = region->plain.blocks = (uint32_t)(length / ONL_BLOCK_BYTES);
    region->base = (uint64_t *)(void *)__start_onlooker_data;
    region->kind_words = length / 8;
    region->kinds = (uint8_t *)calloc(region->kind_words, 1);
    if (length > (size_t)ONL_MAX_REGION_BLOCKS * ONL_BLOCK_BYTES) onl_fault(region, "section onlooker_data is larger than a region");
    if (!region->kinds) goto done;
    onl_section_fields(region);
    onl_make_request(region);
    if (onl_section_place(region) != 0) onl_fault(region, "no memory for the section (%s)", strerror(errno));
    onl_enlist(region);
done:
    onl_leave();
}

/* A library may be unloaded: no thread may run in it then. Its section's pages go with it; the agent sees the connection close. */
__attribute__((destructor)) static void onl_destructor(void) {
    int runs, tid = __atomic_load_n(&onl.tid, __ATOMIC_RELAXED);
    /* In the child of a raw clone there is no thread to wait for, and the lock may be held by the one that was not copied. */
    if (onl.thread_runs && (onl.pid != getpid() || (tid && syscall(SYS_tgkill, onl.pid, tid, 0) != 0 && errno == ESRCH))) return;
    onl_lock(&onl.lock);
    runs = onl.in_library && onl.thread_runs;
    onl.stop = onl.in_library;
    onl_wake();
    onl_leave();
    if (runs) (void)pthread_join(onl.thread, (void **)0);
}

/* ========================================================================================== M public calls ===== */

/* Fills the program's handles. */
static void onl_hand_out(onlooker_region_t *region) {
    onl_field_t *field;
    uint32_t i, words;
    for (field = region->plain.fields; field; field = field->next) {
        uint64_t *word = region->base + onlooker_plain_word(field->slot);
        words = field->n ? onlooker_histogram_buckets(field->g, field->n) + 1 : field->count ? field->count * field->stride : 1;
        for (i = 0; i < words; i++)
            region->kinds[onlooker_plain_word(field->slot + i)] = onl_word_kind(field->metric, field->adds);
        if (field->n) {
            onlooker_histogram_t *histogram = (onlooker_histogram_t *)field->out;
            histogram->words = region->base;
            histogram->first = field->slot;
            histogram->sum = region->base + onlooker_plain_word(field->slot + histogram->buckets);
        } else if (field->count) {
            onlooker_array_t *array = (onlooker_array_t *)field->out;
            array->words = region->base;
            array->first = field->slot;
            array->stride = field->stride;
            array->count = field->count;
        } else {
            memcpy(field->out, &word, sizeof word);
        }
    }
}

/* Gives every group its blocks; 0 when the region cannot be laid out. */
static int onl_layout(onlooker_region_t *region) {
    uint64_t blocks = (region->plain.slots + ONL_PLAIN_SLOTS - 1) / ONL_PLAIN_SLOTS;
    onl_group_t *group;
    region->plain.blocks = (uint32_t)blocks;
    for (group = region->groups; group; group = group->next) {
        if (group->table) onl_table_layout(group->table);
        if (!group->table && group->slots == 0) onl_fault(region, "a guarded group has no fields");
        group->first_block = (uint32_t)blocks;
        blocks += group->blocks;
        if (blocks > ONL_MAX_REGION_BLOCKS) break;
    }
    if (blocks == 0 || blocks > ONL_MAX_REGION_BLOCKS) {
        onl_fault(region, blocks ? "larger than a region can be (%u blocks)" : "it is empty", ONL_MAX_REGION_BLOCKS);
        return 0;
    }
    region->blocks = (uint32_t)blocks;
    region->length = onl_round_up((size_t)blocks * ONL_BLOCK_BYTES, onl_page_bytes());
    region->kind_words = (size_t)region->plain.blocks * ONL_BLOCK_WORDS;
    return 1;
}

int onlooker_open(onlooker_region_t *region) {
    uint64_t *base;
    onl_group_t *group;
    size_t i;
    int result;
    if (region == &onl_dead_region) return -1;
    onl_lock(&onl.lock);
    onl_init();
    if (region->state != ONL_BUILDING) {
        result = region->state == ONL_PRIVATE && region->fault[0] ? -1 : 0;
        onl_leave();
        return result;
    }
    if (onl_layout(region)) {
        region->kinds = (uint8_t *)calloc(region->kind_words + 1, 1);
        base = region->kinds ? onl_map_private(region->length, &region->mirror) : (uint64_t *)0;
        if (base) {
            for (i = 0; i < region->kind_words; i += ONL_BLOCK_WORDS) region->kinds[i] = ONL_WORD_IDENTITY;
            onl_lock_gates(region);
            region->base = base;
            onl_unlock_gates(region);
            onl_hand_out(region);
            /* Tables become readable at once; so do groups that were committed before. */
            for (group = region->groups; group; group = group->next) onl_commit(group);
        } else {
            onl_fault(region, "no memory (%s)", strerror(errno));
        }
        onl_make_request(region);
    }
    onl.late = 0;
    onl_enlist(region);
    result = region->fault[0] ? -1 : 0;
    onl_leave();
    return result;
}

void onlooker_start(void) {
    onl_lock(&onl.lock);
    onl_init();
    onl.late = 0;
    if (onl.regions) onl_start_thread();
    onl_leave();
}

void onlooker_status(onlooker_status_t *status) {
    onlooker_region_t *region;
    memset(status, 0, sizeof *status);
    onl_lock(&onl.lock);
    for (region = onl.regions; region; region = region->next) {
        status->regions++;
        status->published += region->state == ONL_PUBLISHED;
        status->refused += region->state == ONL_REFUSED || region->fault[0] != 0;
    }
    status->state = onl.disabled          ? ONLOOKER_DISABLED
                    : onl.detached        ? ONLOOKER_DETACHED
                    : onl.connected       ? ONLOOKER_CONNECTED
                    : status->regions > 0 && !onl.late ? ONLOOKER_WAITING
                                          : ONLOOKER_IDLE;
    status->connections = onl.connections;
    status->switches = onl.switches;
    status->last_window_ns = onl.last_window_ns;
    status->worst_window_ns = onl.worst_window_ns;
    onl_lock(&onl.error_lock);
    status->errors = onl.errors;
    memcpy(status->error, onl.error, sizeof status->error);
    onl_unlock(&onl.error_lock);
    onl_leave();
}

void onlooker_on_error(void (*callback)(const char *message, void *context), void *context) {
    onl_lock(&onl.error_lock);
    onl.callback = callback;
    onl.callback_context = context;
    onl_unlock(&onl.error_lock);
}

int onlooker_wait(int timeout_ms) {
    uint64_t until_ns = onl_now_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u, now_ns;
    for (;;) {
        struct timespec left;
        int changed = __atomic_load_n(&onl.changed, __ATOMIC_ACQUIRE);
        onlooker_status_t status;
        onlooker_status(&status);
        if (status.regions > 0 && status.published == status.regions) return 0;
        now_ns = onl_now_ns();
        if (now_ns >= until_ns) return -1;
        left.tv_sec = (time_t)((until_ns - now_ns) / 1000000000u);
        left.tv_nsec = (long)((until_ns - now_ns) % 1000000000u);
        (void)syscall(SYS_futex, &onl.changed, 128 | 0, changed, &left, (void *)0, 0);
    }
}

#ifdef __cplusplus
}
#endif
#endif /* ONLOOKER_IMPLEMENTATION */
