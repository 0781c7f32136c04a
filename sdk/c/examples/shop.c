// SPDX-License-Identifier: Apache-2.0
/* A small shop that serves imaginary requests and publishes what it does, all of it without a call while it works.
 *     cc -O2 -pthread -o shop sdk/c/examples/shop.c && ./shop 60
 * `onlooker top` then shows two regions: `shop` (the section below) and `shop_orders`. */
#define ONLOOKER_IMPLEMENTATION
#include "../onlooker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS = 2 };

/* Globals, known when the program is linked: an increment is one instruction on a constant address. */
ONLOOKER_COUNTER(shop_visits_total, "visits", "People who came in");
ONLOOKER_UPDOWN(shop_visitors, "visitors", "People in the shop");
ONLOOKER_GAUGE_F64(shop_temperature_celsius, "celsius", "How warm it is", "room", "front");
ONLOOKER_COUNTER_ARRAY(shop_jobs_total, WORKERS, "worker", "jobs", "Jobs done");

/* A region, whose shape is known when the program runs. */
static onlooker_counter_t *orders[2]; /* by result */
static onlooker_histogram_t latency;
static onlooker_guarded_t *till; /* its fields always fit together */
static onlooker_table_t *customers;
static int customer_orders, customer_spent;
static int stopped;

typedef struct till_values {
    uint64_t sales;
    uint64_t cents;
    double mean_cents; /* cents / sales: true in every copy that a reader accepts */
} till_values_t;

static void open_region(void) {
    onlooker_region_t *region = onlooker_region("shop_orders");
    onlooker_region_label(region, "branch", "harbour");
    onlooker_new_counter(region, &orders[0], "shop_orders_total", "orders", "Orders", "result", "paid");
    onlooker_new_counter(region, &orders[1], "shop_orders_total", "orders", "Orders", "result", "refused");
    onlooker_new_histogram(region, &latency, 3, 36, "shop_order_seconds", "seconds", "Time from order to answer");
    onlooker_scale(region, 1e-9);
    till = onlooker_new_guarded(region);
    (void)onlooker_guarded_field(till, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "shop_till_sales_total", "sales", "Sales");
    (void)onlooker_guarded_field(till, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "shop_till_cents_total", "", "Cents taken");
    (void)onlooker_guarded_field(till, ONLOOKER_F64, ONLOOKER_METRIC_GAUGE, "shop_till_mean_cents", "", "Cents a sale");
    customers = onlooker_new_table(region, 64);
    onlooker_table_key_text(customers, "customer", 16);
    customer_orders = onlooker_table_field(customers, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "shop_customer_orders_total", "orders", "");
    customer_spent = onlooker_table_field(customers, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "shop_customer_cents_total", "", "");
    if (onlooker_open(region) != 0) { /* the program goes on: the values are just not published */
        onlooker_status_t status;
        onlooker_status(&status);
        fprintf(stderr, "shop: %s\n", status.error);
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* How busy it is, 0 to 1: a rush every 20 s, and a short one every 7 s. */
static double rush(void) {
    double tide = (double)(now_ns() % 20000000000u) / 10e9, burst = (double)(now_ns() % 7000000000u) / 1e9;
    return (tide < 1 ? tide : 2 - tide) * (burst < 1 ? 1.0 : 0.7);
}

static void serve(unsigned worker, unsigned *seed) {
    static const char *const names[] = {"ada", "grace", "hedy", "katherine", "margaret"};
    static till_values_t values;
    static pthread_mutex_t till_drawer = PTHREAD_MUTEX_INITIALIZER;
    struct timespec work = {0, 0}, pause = {0, 0};
    uint64_t began_ns, cents = 100 + (unsigned)rand_r(seed) % 5000;
    const char *name = names[(unsigned)rand_r(seed) % 5];
    double busy = rush();
    onlooker_key_t key;
    onlooker_row_t row;

    pause.tv_nsec = (long)((1 - busy) * 8e6); /* until the next one comes */
    nanosleep(&pause, (struct timespec *)0);
    began_ns = now_ns();
    onlooker_counter_inc(&shop_visits_total);
    onlooker_updown_add(&shop_visitors, 1);
    work.tv_nsec = 200000 + (long)(busy * (double)(rand_r(seed) % 4000000)); /* the busier, the slower */
    nanosleep(&work, (struct timespec *)0);

    if (rand_r(seed) % 20 == 0) {
        onlooker_counter_inc(orders[1]);
    } else {
        onlooker_counter_inc(orders[0]);
        pthread_mutex_lock(&till_drawer); /* the sums are the program's; the SDK needs no lock of ours */
        values.sales++;
        values.cents += cents;
        values.mean_cents = (double)values.cents / (double)values.sales;
        onlooker_guarded_commit_values(till, &values, sizeof values);
        pthread_mutex_unlock(&till_drawer);

        key = onlooker_key(customers);
        onlooker_key_text(&key, name);
        onlooker_table_begin(customers);
        row = onlooker_table_insert(customers, &key);
        (void)onlooker_table_add(customers, row, customer_orders, 1);
        (void)onlooker_table_add(customers, row, customer_spent, cents);
        onlooker_table_commit(customers);
    }
    onlooker_histogram_record(&latency, now_ns() - began_ns);
    onlooker_counter_inc(&shop_jobs_total[worker]);
    onlooker_updown_add(&shop_visitors, -1);
}

static void *work(void *context) {
    unsigned worker = (unsigned)(uintptr_t)context, seed = worker + 1;
    while (!__atomic_load_n(&stopped, __ATOMIC_RELAXED)) serve(worker, &seed);
    return (void *)0;
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 10, i, tenth;
    pthread_t workers[WORKERS];
    onlooker_status_t status;
    open_region();
    for (i = 0; i < WORKERS; i++)
        if (pthread_create(&workers[i], (pthread_attr_t *)0, work, (void *)(uintptr_t)i) != 0) return 1;
    for (i = 0; i < seconds; i++)
        for (tenth = 0; tenth < 10; tenth++) {
            struct timespec pause = {0, 100000000};
            onlooker_gauge_f64_set(&shop_temperature_celsius, 19.0 + 2 * rush());
            nanosleep(&pause, (struct timespec *)0);
        }
    __atomic_store_n(&stopped, 1, __ATOMIC_RELAXED);
    for (i = 0; i < WORKERS; i++) pthread_join(workers[i], (void **)0);
    onlooker_status(&status);
    printf("%llu visits, %llu orders; %u of %u regions published%s%s\n", (unsigned long long)onlooker_counter_value(&shop_visits_total),
           (unsigned long long)onlooker_counter_value(orders[0]), status.published, status.regions, status.error[0] ? "; last error: " : "",
           status.error);
    return 0;
}
