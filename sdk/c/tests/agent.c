// SPDX-License-Identifier: Apache-2.0
/* The SDK against a scripted agent: registration and its faults, the switch, retreat, resuming, forks, closed descriptors. */
#define ONLOOKER_ANSWER_MS 300
#define ONLOOKER_RETREAT_MS 700
#define ONLOOKER_BACKOFF_MS 40
#define ONLOOKER_REFUSED_MS 400
#define ONLOOKER_DUPLICATE_MS 50
#define ONLOOKER_IMPLEMENTATION
#include "../onlooker.h"

#include "check.h"
#include "peer.h"
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

ONLOOKER_COUNTER(section_total, "things", "Things counted", "kind", "section");
ONLOOKER_STATIC_UPDOWN(section_open, "things", "Things open");

static char directory[64], path[100];
/* Shared with forked children, which look at what their parent's peer gave them. */
static peer_t *shared_peer;
#define peer (*shared_peer)
#define RANGE peer.ranges[1]
static onlooker_region_t *region;
static onlooker_counter_t *requests;
static onlooker_updown_t *in_flight;
static onlooker_gauge_t *level;
static onlooker_histogram_t latency;
static onlooker_guarded_t *group;
static onlooker_table_t *table;

static onlooker_status_t now(void) {
    onlooker_status_t status;
    onlooker_status(&status);
    return status;
}

static int descriptors(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static int mappings(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    int c, n = 0;
    while ((c = getc(f)) != EOF) n += c == '\n';
    fclose(f);
    return n;
}

/* Of the SDK's threads; and which signals the one that works blocks. */
static unsigned long wakeups(unsigned long long *blocked) {
    char name[300], line[200], comm[32];
    unsigned long switches = 0;
    *blocked = 0;
    struct dirent *entry;
    DIR *d = opendir("/proc/self/task");
    while ((entry = readdir(d)) != (struct dirent *)0) {
        FILE *f;
        (void)snprintf(name, sizeof name, "/proc/self/task/%s/status", entry->d_name);
        f = fopen(name, "r");
        if (!f) continue;
        comm[0] = 0;
        while (fgets(line, sizeof line, f)) {
            unsigned long n;
            unsigned long long mask;
            if (sscanf(line, "Name: %31s", comm) == 1) continue;
            if (strcmp(comm, "onlooker") == 0 && sscanf(line, "SigBlk: %llx", &mask) == 1) *blocked = mask;
            if (strncmp(comm, "onlooker", 8) == 0 && sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1) switches += n;
        }
        fclose(f);
    }
    closedir(d);
    return switches;
}

static size_t section_offset(const void *variable) { return (size_t)((const unsigned char *)variable - __start_onlooker_data); }

static void open_region(void) {
    region = onlooker_region("shop");
    onlooker_new_counter(region, &requests, "requests_total", "requests", "Requests");
    onlooker_new_updown(region, &in_flight, "in_flight", "requests", "");
    onlooker_new_gauge(region, &level, "level", "", "");
    onlooker_new_histogram(region, &latency, 3, 20, "latency", "", "");
    group = onlooker_new_guarded(region);
    (void)onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, "length", "", "");
    (void)onlooker_guarded_field(group, ONLOOKER_U64, ONLOOKER_METRIC_GAUGE, "half", "", "");
    table = onlooker_new_table(region, 20);
    onlooker_table_key_u64(table, "id");
    (void)onlooker_table_field(table, ONLOOKER_U64, ONLOOKER_METRIC_COUNTER, "row_total", "", "");
    CHECK_EQUAL(onlooker_open(region), 0);
}

/* The section alone first: nothing was called, and it is there. Then a region beside it. */
static void test_registration(void) {
    uint64_t identity;
    onlooker_row_t row;
    onlooker_key_t key;
    uint64_t values[2] = {20, 10};
    CHECK(now().state == ONLOOKER_WAITING && now().regions == 1);
    onlooker_counter_add(&section_total, 5);
    onlooker_updown_add(&section_open, -1);
    peer_start(&peer, path, PEER_GOOD);
    CHECK_EQUAL(onlooker_wait(10000), 0);
    CHECK(now().state == ONLOOKER_CONNECTED && now().published == 1 && now().errors == 0);
    CHECK(strstr(peer.request, "\"kind\":\"foreign\"") && strstr(peer.request, "\"name\":\"section_total\"") &&
          strstr(peer.request, "\"labels\":{\"kind\":\"section\"}"));
    CHECK_EQUAL(peer_section_word(&peer, section_offset(&section_total)), 5);
    onlooker_counter_inc(&section_total); /* straight into the slab */
    CHECK_EQUAL(peer_section_word(&peer, section_offset(&section_total)), 6);
    CHECK_EQUAL((int64_t)peer_section_word(&peer, section_offset(&section_open)), -1);

    open_region();
    onlooker_counter_add(requests, 3);
    onlooker_gauge_set(level, -7);
    onlooker_histogram_record(&latency, 1000);
    onlooker_guarded_commit_values(group, values, 16);
    key = onlooker_key(table);
    onlooker_key_u64(&key, 77);
    row = onlooker_table_insert(table, &key);
    CHECK_EQUAL(onlooker_table_add(table, row, 0, 4), 0);
    CHECK_EQUAL(onlooker_wait(10000), 0);
    identity = PEER_GET(RANGE.id) << 16 | PEER_GET(RANGE.generation) << 40;
    CHECK_EQUAL(peer_word(&peer, 0, 0), identity);
    CHECK_EQUAL(peer_word(&peer, 1, 0), identity + 1);
    CHECK_EQUAL(peer_word(&peer, 0, 1), 3);
    CHECK_EQUAL((int64_t)peer_word(&peer, 0, 3), -7);
    CHECK_EQUAL(*latency.sum, 1000);
    CHECK_EQUAL(peer_word(&peer, 2, 2), identity + 2);
    CHECK_EQUAL(peer_word(&peer, 2, 3), 20);
    CHECK_EQUAL(peer_word(&peer, 3, 2), identity + 3);
    CHECK_EQUAL(peer_word(&peer, 3, 4), 77);
    CHECK_EQUAL(peer_word(&peer, 3, 5), 4);
    onlooker_counter_inc(requests);
    CHECK_EQUAL(peer_word(&peer, 0, 1), 4);
    values[0] = 40;
    onlooker_guarded_commit_values(group, values, 16);
    CHECK_EQUAL(peer_word(&peer, 2, 3), 40);
    CHECK_EQUAL(peer_word(&peer, 2, 2), identity + 2);
}

static void test_quiet(void) {
    unsigned long before;
    unsigned long long blocked;
    int i;
    check_sleep_ms(50);
    before = wakeups(&blocked);
    CHECK(before > 0);
    for (i = 1; i < SIGRTMIN; i++) /* those in between are the C library's own */
        if (i != SIGKILL && i != SIGSTOP && i < 32) CHECK(blocked >> (i - 1) & 1);
    check_sleep_ms(1000);
    CHECK_EQUAL(wakeups(&blocked), before); /* connected: the thread does not wake at all */
}

/* A short absence. */
static void test_resume(void) {
    uint64_t offset = PEER_GET(RANGE.offset), switches = now().switches, errors;
    int creates = PEER_GET(peer.creates), publishes = PEER_GET(peer.publishes), i;
    peer_cut(&peer); /* other ranges */
    CHECK_SOON(PEER_GET(peer.publishes) == publishes + 2);
    CHECK_EQUAL(onlooker_wait(10000), 0);
    CHECK_EQUAL(PEER_GET(peer.creates), creates + 2);
    CHECK_EQUAL(now().switches, switches + 2);
    CHECK(PEER_GET(RANGE.offset) != offset);
    CHECK_EQUAL(peer_word(&peer, 0, 1), onlooker_counter_value(requests));

    PEER_SET(peer.resume, 1); /* the very ranges: nothing to move, nothing to publish */
    peer_cut(&peer);
    for (i = 0; i < 1000; i++) onlooker_counter_inc(requests);
    CHECK_SOON(PEER_GET(peer.creates) == creates + 4);
    CHECK_SOON(now().published == 2);
    CHECK_EQUAL(now().switches, switches + 2);
    CHECK_EQUAL(PEER_GET(peer.publishes), publishes + 2);
    CHECK_EQUAL(peer_word(&peer, 0, 1), onlooker_counter_value(requests));

    /* The very range under another generation: refused, since copying it onto itself would double counts. After the retreat from it
     * there is nothing against it. */
    offset = PEER_GET(RANGE.offset);
    errors = now().errors;
    PEER_SET(RANGE.generation, PEER_GET(RANGE.generation) + 1);
    peer_cut(&peer);
    CHECK_SOON(now().errors > errors);
    CHECK(strstr(now().error, "as a new one"));
    CHECK_SOON(now().published == 2);
    CHECK_EQUAL(PEER_GET(RANGE.offset), offset);
    CHECK_EQUAL(region->identity, PEER_GET(RANGE.id) << 16 | PEER_GET(RANGE.generation) << 40);
    CHECK_EQUAL(peer_word(&peer, 0, 0), region->identity);
    CHECK_EQUAL(onlooker_counter_value(requests), 1004);
    CHECK_EQUAL(peer_word(&peer, 0, 1), 1004);
    PEER_SET(peer.resume, 0);
}

/* A long absence: back to private memory before the range is somebody else's. */
static void test_retreat(void) {
    uint64_t *old = (uint64_t *)(void *)(peer.memory + PEER_GET(RANGE.offset)), switches = now().switches, value;
    peer_halt(&peer);
    (void)unlink(path);
    onlooker_counter_inc(requests);
    CHECK_EQUAL(old[1], onlooker_counter_value(requests)); /* still there at first */
    CHECK_SOON(now().state == ONLOOKER_WAITING);
    CHECK_SOON(now().switches == switches + 2);
    value = onlooker_counter_value(requests);
    memset(peer.memory, 0xEE, PEER_SLAB_BYTES); /* the range is another's now */
    onlooker_counter_inc(requests);
    CHECK_EQUAL(onlooker_counter_value(requests), value + 1);
    CHECK_EQUAL(old[1], 0xEEEEEEEEEEEEEEEEu);
    CHECK_EQUAL(region->identity, 0);
    (void)close(peer.slab);
    (void)close(peer.wake[0]);
    (void)close(peer.wake[1]);
    (void)munmap(peer.memory, PEER_SLAB_BYTES);
}

/* Every fault: the program goes on, and a good agent is believed afterwards. */
static void test_faults(void) {
    int fault;
    for (fault = PEER_GOOD + 1; fault < PEER_FAULTS; fault++) {
        uint64_t errors = now().errors, value = onlooker_counter_value(requests), connections = now().connections;
        int fds, before = check_failed, silent_eof = fault == PEER_HELLO_EOF || fault == PEER_CREATE_EOF || fault == PEER_PUBLISH_EOF;
        peer_start(&peer, path, (peer_fault_t)fault);
        if (fault == PEER_CREATE_REFUSED || fault == PEER_CREATE_DENIED) {
            CHECK_SOON(now().refused == 2);
            check_sleep_ms(fault == PEER_CREATE_DENIED ? 1000 : 100);
            CHECK_EQUAL(PEER_GET(peer.creates), 2); /* not asked again so soon; a denied one not at all on this connection */
        } else if (fault == PEER_CREATE_DUPLICATE) {
            CHECK_SOON(PEER_GET(peer.creates) >= 4);
        } else if (fault == PEER_PUBLISH_REFUSED) {
            CHECK_SOON(now().refused == 2);
            CHECK_EQUAL(region->identity, 0);
        } else if (fault == PEER_CHATTERS) {
            CHECK_SOON(now().connections > connections + 2);
        } else {
            CHECK_SOON(PEER_GET(peer.hellos) >= 2);
            if (fault >= PEER_CREATE_EOF && fault != PEER_SILENT) CHECK(PEER_GET(peer.creates) > 0);
            CHECK_EQUAL(now().published, 0);
        }
        if (silent_eof) CHECK_EQUAL(now().errors, errors);
        else CHECK(now().errors > errors && now().error[0]);
        onlooker_counter_inc(requests);
        CHECK_EQUAL(onlooker_counter_value(requests), value + 1);
        if (fault == PEER_HELLO_REFUSED) CHECK(strstr(now().error, "denied") && strstr(now().error, "not \"you\"?"));
        PEER_SET(peer.fault, PEER_GOOD);
        if (fault == PEER_CREATE_DENIED) peer_cut(&peer); /* a new connection asks again */
        CHECK_EQUAL(onlooker_wait(10000), 0);
        if (fault >= PEER_CREATE_DUPLICATE && fault <= PEER_CREATE_REFUSED) CHECK_EQUAL(PEER_GET(peer.hellos), 1);
        fds = descriptors();
        CHECK_SOON(descriptors() <= fds);
        CHECK_EQUAL(peer_word(&peer, 0, 1), onlooker_counter_value(requests));
        peer_stop(&peer);
        CHECK_SOON(now().state == ONLOOKER_WAITING);
        if (check_failed > before) fprintf(stderr, "... with fault %d: %s\n", fault, now().error);
    }
}

/* The agent comes, goes, and comes again while threads count; nothing is lost. */
typedef struct counting {
    int stop;
    uint64_t done;
    int64_t balance;
    uint64_t records, torn;
} counting_t;

static void *count(void *context) {
    counting_t *c = (counting_t *)context;
    while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
        int i;
        for (i = 0; i < 100; i++) {
            onlooker_counter_inc(requests);
            onlooker_counter_inc(&section_total);
            onlooker_updown_add(in_flight, i % 3 - 1);
            c->balance += i % 3 - 1;
            c->done++;
        }
        onlooker_histogram_record(&latency, c->done % 1000);
        c->records++;
    }
    return (void *)0;
}

static void *commit(void *context) {
    counting_t *c = (counting_t *)context;
    while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
        uint64_t values[2], copy[128];
        values[0] = 2 * c->done;
        values[1] = c->done;
        onlooker_guarded_commit_values(group, values, 16);
        onlooker_gauge_set(level, (int64_t)c->done);
        if (onl_read_block(region->base + (size_t)group->group.first_block * 128, copy))
            c->torn += copy[3] != 2 * copy[4] || copy[4] != c->done;
        c->done++;
        if (c->done % 16 == 0) sched_yield();
    }
    return (void *)0;
}

static int on_slab(void) {
    int slab;
    onl_lock(&onl.lock);
    slab = region->memory.slab;
    onl_unlock(&onl.lock);
    return slab;
}

static void test_switching(int rounds) {
    enum { THREADS = 3 };
    pthread_t threads[THREADS + 1];
    static counting_t counting[THREADS + 1];
    int bpf = peer_bpf_slab();
    uint64_t total = onlooker_counter_value(requests), section = onlooker_counter_value(&section_total), records = 0, sum = 0;
    int64_t balance = onlooker_updown_value(in_flight);
    static uint64_t slots[4097];
    int i, maps;
    uint32_t b;
    onlooker_histogram_read(&latency, slots);
    for (b = 0; b < latency.buckets; b++) records += slots[b];
    for (i = 0; i < THREADS; i++) (void)pthread_create(&threads[i], (pthread_attr_t *)0, count, &counting[i]);
    (void)pthread_create(&threads[THREADS], (pthread_attr_t *)0, commit, &counting[THREADS]);
    maps = 0;
    if (bpf < 0) printf("switching: only memfd slabs, bpf(2) is not allowed here (%s)\n", strerror(errno));
    for (i = 0; i < rounds; i++) {
        peer_slab_is_bpf = bpf >= 0 && i % 2;
        peer_start(&peer, path, PEER_GOOD);
        if (onlooker_wait(20000) != 0) CHECK_EQUAL(i, 99999);
        if (i == 1) maps = mappings();
        peer_stop(&peer);
        while (now().state == ONLOOKER_CONNECTED) check_sleep_ms(1);
        if (i % 50 == 49) while (on_slab()) check_sleep_ms(10); /* these times it is gone for long: retreat */
    }
    CHECK(mappings() <= maps + 4);
    if (bpf >= 0) (void)close(bpf);
    peer_slab_is_bpf = 0;
    peer_start(&peer, path, PEER_GOOD);
    CHECK_EQUAL(onlooker_wait(10000), 0);
    for (i = 0; i <= THREADS; i++) __atomic_store_n(&counting[i].stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i <= THREADS; i++) (void)pthread_join(threads[i], (void **)0);
    for (i = 0; i < THREADS; i++) {
        total += counting[i].done;
        section += counting[i].done;
        balance += counting[i].balance;
        records += counting[i].records;
    }
    CHECK_EQUAL(onlooker_counter_value(requests), total);
    CHECK_EQUAL(onlooker_counter_value(&section_total), section);
    CHECK_EQUAL(onlooker_updown_value(in_flight), balance);
    CHECK_EQUAL(peer_word(&peer, 0, 1), total);
    onlooker_histogram_read(&latency, slots);
    for (b = 0; b < latency.buckets; b++) sum += slots[b];
    CHECK_EQUAL(sum, records);
    CHECK_EQUAL(counting[THREADS].torn, 0);
    CHECK_EQUAL((uint64_t)onlooker_gauge_value(level), counting[THREADS].done - 1);
    CHECK_EQUAL(peer_word(&peer, 2, 4), counting[THREADS].done - 1);
    printf("switching: %d comings, %llu increments, %llu switches, worst window %llu ns\n", rounds,
           (unsigned long long)(counting[0].done + counting[1].done + counting[2].done), (unsigned long long)now().switches,
           (unsigned long long)now().worst_window_ns);
}

/* The SDK's descriptors are not among the program's, so that closing all of those, as daemons do, does not touch them. */
static void test_descriptors(void) {
#ifndef ONL_TSAN
    char path_of_fds[64];
    struct dirent *entry;
    int ours = 0;
    DIR *d;
    CHECK_EQUAL(onlooker_wait(10000), 0);
    check_sleep_ms(50);
    onl_lock(&onl.lock);
    CHECK(onl.connection.fd >= 3 && !onl_fd_ok(&onl.connection) && !onl_fd_ok(&onl.wake_read) && !onl_fd_ok(&onl.wake_write));
    CHECK(!onl.deaf);
    (void)snprintf(path_of_fds, sizeof path_of_fds, "/proc/self/task/%d/fd", onl.tid);
    onl_unlock(&onl.lock);
    d = opendir(path_of_fds);
    CHECK(d != (DIR *)0);
    while (d && (entry = readdir(d)) != (struct dirent *)0) ours += entry->d_name[0] != '.';
    if (d) closedir(d);
    CHECK_EQUAL(ours, 3); /* connection, and the two ends of the pipe that wakes it: none of the program's */
#endif
}

static int in_child(int (*body)(void)) {
    int status = -1;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        check_failed = 0;
        _exit(body() || check_failed);
    }
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static uint64_t total_at_fork;

static int child_is_silent(void) {
    int i;
    CHECK_EQUAL(onlooker_counter_value(requests), total_at_fork);
    CHECK_EQUAL(now().state, ONLOOKER_DETACHED);
    for (i = 0; i < 1000; i++) onlooker_counter_inc(requests);
    for (i = 0; i < 1000; i++) onlooker_counter_inc(&section_total);
    onlooker_guarded_begin(group); /* not locked for ever by a thread that the child has not */
    onlooker_guarded_set_u64(group, 0, 123456);
    onlooker_guarded_commit(group);
    CHECK_EQUAL(onlooker_counter_value(requests), total_at_fork + 1000);
    CHECK(peer_word(&peer, 0, 1) == total_at_fork); /* the parent's is as it was */
    CHECK_EQUAL(onlooker_wait(50), -1);
    return 0;
}

static int grandchild(void) {
    CHECK_EQUAL(onlooker_counter_value(requests), total_at_fork + 1);
    onlooker_counter_inc(requests);
    return 0;
}

static int child_with_child(void) {
    onlooker_counter_inc(requests);
    CHECK_EQUAL(in_child(grandchild), 0);
    CHECK_EQUAL(onlooker_counter_value(requests), total_at_fork + 1);
    return 0;
}

static int child_publishes(void) {
    int i;
    int64_t open = onlooker_updown_value(in_flight);
    CHECK_EQUAL(onlooker_wait(10000), 0);
    CHECK_EQUAL(now().state, ONLOOKER_CONNECTED);
    for (i = 0; i < 100; i++) onlooker_counter_inc(requests);
    CHECK_EQUAL(onlooker_counter_value(requests), onl.follow == ONLOOKER_FORK_FRESH ? 100 : total_at_fork + 100);
    CHECK_EQUAL(peer_word(&peer, 0, 1), onlooker_counter_value(requests)); /* the last range is the child's */
    CHECK_EQUAL(onlooker_updown_value(in_flight), open);
    CHECK_EQUAL((int64_t)peer_word(&peer, 0, 2), open);
    return 0;
}

static int child_joins_late(void) {
    onlooker_counter_inc(requests);
    onlooker_follow_fork(ONLOOKER_FORK_KEEP);
    CHECK_EQUAL(onlooker_wait(10000), 0);
    CHECK_EQUAL(peer_word(&peer, 0, 1), total_at_fork + 1);
    return 0;
}

/* What it opens after it has given up its rights is published all the same: waking the thread needs none. */
static int child_drops_rights(void) {
    onlooker_region_t *late;
    onlooker_counter_t *counter;
    CHECK_EQUAL(onlooker_wait(10000), 0);
    check_sleep_ms(50);
    CHECK_EQUAL(prctl(PR_SET_DUMPABLE, 0), 0); /* /proc/self is root's now */
    if (getuid() == 0) CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    check_sleep_ms(50); /* that has woken the thread, too */
    late = onlooker_region("late");
    onlooker_new_counter(late, &counter, "late_total", "", "");
    CHECK_EQUAL(onlooker_open(late), 0);
    CHECK_EQUAL(onlooker_wait(10000), 0);
    return 0;
}

/* Standard error that nobody reads holds nobody up. */
static int child_with_full_stderr(void) {
    int ends[2], normal = dup(2);
    char page[4096];
    onlooker_region_t *faulty;
    memset(page, 'x', sizeof page);
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    while (write(ends[1], page, sizeof page) > 0) continue;
    (void)fcntl(ends[1], F_SETFL, 0);
    (void)dup2(ends[1], 2);
    onl.debug = 1;
    (void)alarm(10);
    faulty = onlooker_region("not a name");
    CHECK_EQUAL(onlooker_open(faulty), -1);
    CHECK(now().errors > 0 && onl.unsaid_bytes == 0);
    while (read(ends[0], page, sizeof page) > 0) continue;
    faulty = onlooker_region("not a name either");
    CHECK_EQUAL(onlooker_open(faulty), -1);
    CHECK(read(ends[0], page, sizeof page) > 10 && memcmp(page, "onlooker: ", 10) == 0);
    (void)dup2(normal, 2);
    return 0;
}

static uint64_t parents_range;

static void *hold_group(void *stop) {
    onlooker_guarded_begin(group);
    onlooker_guarded_set_u64(group, 0, 999);
    onlooker_guarded_set_u64(group, 1, 1);
    while (!__atomic_load_n((int *)stop, __ATOMIC_SEQ_CST)) check_sleep_ms(1);
    onlooker_guarded_commit(group);
    return (void *)0;
}

static int child_of_half_set_group(void) {
    uint64_t copy[128];
    CHECK(onl_read_block(region->base + (size_t)group->group.first_block * 128, copy));
    CHECK(copy[3] != 999);
    onlooker_guarded_begin(group);
    onlooker_guarded_commit(group);
    CHECK(onl_read_block(region->base + (size_t)group->group.first_block * 128, copy));
    CHECK(copy[3] != 999); /* half-set values of a thread that is not here */
    return 0;
}

static void test_forks(void) {
    int stop = 0, creates;
    pthread_t thread;
    uint64_t section = onlooker_counter_value(&section_total);
    CHECK_EQUAL(onlooker_wait(10000), 0);
    parents_range = PEER_GET(RANGE.offset);
    total_at_fork = onlooker_counter_value(requests);
    creates = PEER_GET(peer.creates);
    CHECK_EQUAL(in_child(child_is_silent), 0);
    CHECK_EQUAL(in_child(child_with_child), 0);
    CHECK_EQUAL(PEER_GET(peer.creates), creates); /* silent */
    CHECK_EQUAL(onlooker_counter_value(requests), total_at_fork);
    CHECK_EQUAL(onlooker_counter_value(&section_total), section);
    CHECK_EQUAL(now().published, 2);

    (void)pthread_create(&thread, (pthread_attr_t *)0, hold_group, &stop);
    check_sleep_ms(20);
    CHECK_EQUAL(in_child(child_of_half_set_group), 0);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    (void)pthread_join(thread, (void **)0);

    CHECK_EQUAL(in_child(child_with_full_stderr), 0);
    CHECK_EQUAL(in_child(child_joins_late), 0);
    onlooker_follow_fork(ONLOOKER_FORK_KEEP);
    CHECK_EQUAL(in_child(child_publishes), 0);
    onlooker_follow_fork(ONLOOKER_FORK_FRESH);
    CHECK_EQUAL(in_child(child_publishes), 0);
    CHECK_EQUAL(PEER_GET(peer.creates), creates + 6);
    onlooker_follow_fork(ONLOOKER_FORK_KEEP);
    CHECK_EQUAL(in_child(child_drops_rights), 0);
    onlooker_follow_fork(ONLOOKER_FORK_DETACH);
    CHECK(PEER_GET(RANGE.offset) != parents_range);
    PEER_SET(RANGE.offset, parents_range);
    CHECK_EQUAL(now().published, 2); /* the parent's are where they were */
    CHECK_EQUAL(onlooker_counter_value(requests), total_at_fork);
    CHECK_EQUAL(peer_word(&peer, 0, 1), total_at_fork);
}

static uint64_t in_handler;

static void handler(int signal) {
    (void)signal;
    onlooker_counter_inc(requests);
    onlooker_counter_inc(&section_total);
    __atomic_fetch_add(&in_handler, 1, __ATOMIC_RELAXED);
}

static void *send_signals(void *stop) {
    sigset_t mine;
    (void)sigfillset(&mine);
    (void)pthread_sigmask(SIG_BLOCK, &mine, (sigset_t *)0);
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) (void)kill(getpid(), SIGUSR1);
    return (void *)0;
}

/* Children, programs that they become, and signals without a pause, while threads and a signal handler count and agents come and go. */
static void test_storms(int rounds) {
    enum { THREADS = 2, CHILDREN = 8 };
    pthread_t threads[THREADS], sender;
    static counting_t counting[THREADS];
    struct sigaction action, before;
    uint64_t total, section = onlooker_counter_value(&section_total);
    int i, child, stop = 0, lost = 0;
    total = onlooker_counter_value(requests);
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    (void)sigaction(SIGUSR1, &action, &before);
    for (i = 0; i < THREADS; i++) (void)pthread_create(&threads[i], (pthread_attr_t *)0, count, &counting[i]);
    (void)pthread_create(&sender, (pthread_attr_t *)0, send_signals, &stop);
    peer_stop(&peer);
    while (now().state == ONLOOKER_CONNECTED) check_sleep_ms(1);
    for (i = 0; i < rounds; i++) {
        pid_t children[CHILDREN];
        peer_start(&peer, path, PEER_GOOD);
        for (child = 0; child < CHILDREN; child++) {
            children[child] = fork();
            if (children[child] == 0) {
                onlooker_counter_add(requests, 1000000);
                if (child % 2) execl("/bin/true", "true", (char *)0);
                _exit(0);
            }
        }
        if (onlooker_wait(20000) != 0) lost++;
        for (child = 0; child < CHILDREN; child++) {
            int status = -1;
            while (waitpid(children[child], &status, 0) < 0 && errno == EINTR) continue;
            lost += status != 0;
        }
        peer_stop(&peer);
        while (now().state == ONLOOKER_CONNECTED) check_sleep_ms(1);
    }
    peer_start(&peer, path, PEER_GOOD);
    CHECK_EQUAL(onlooker_wait(20000), 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    (void)pthread_join(sender, (void **)0);
    for (i = 0; i < THREADS; i++) __atomic_store_n(&counting[i].stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], (void **)0);
        total += counting[i].done;
        section += counting[i].done;
    }
    /* A last signal may be on its way. */
    CHECK_SOON(onlooker_counter_value(requests) == total + PEER_GET(in_handler));
    (void)sigaction(SIGUSR1, &before, (struct sigaction *)0);
    CHECK_EQUAL(lost, 0);
    CHECK(in_handler > 0);
    CHECK_EQUAL(onlooker_counter_value(&section_total), section + in_handler);
    CHECK_EQUAL(peer_word(&peer, 0, 1), total + in_handler);
    printf("storms: %d agents, %d children, %llu signals\n", rounds, rounds * CHILDREN, (unsigned long long)in_handler);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 200;
    if (!getenv("ONLOOKER_TEST_DIRECTORY")) {
        /* the constructor has run: begin again with the socket's path in the environment. The directory does not exist yet. */
        (void)snprintf(directory, sizeof directory, "/tmp/onlooker-test-XXXXXX");
        if (!mkdtemp(directory)) return 2;
        (void)snprintf(path, sizeof path, "%s/run/deep/agent.sock", directory);
        (void)setenv("ONLOOKER_SOCKET", path, 1);
        (void)setenv("ONLOOKER_TEST_DIRECTORY", directory, 1);
        execv("/proc/self/exe", argv);
        return 2;
    }
    (void)snprintf(directory, sizeof directory, "%s", getenv("ONLOOKER_TEST_DIRECTORY"));
    (void)snprintf(path, sizeof path, "%s", getenv("ONLOOKER_SOCKET"));
    shared_peer = (peer_t *)mmap((void *)0, sizeof *shared_peer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check_sleep_ms(30); /* the thread watches the nearest parent by now */
    path[strlen(path) - strlen("/deep/agent.sock")] = 0;
    (void)mkdir(path, 0700);
    (void)strcat(path, "/deep");
    (void)mkdir(path, 0700);
    (void)strcat(path, "/agent.sock");

    test_registration();
    onlooker_updown_add(in_flight, 4);
    test_quiet();
    test_resume();
    test_retreat();
    test_faults();
    test_switching(rounds);
    test_descriptors();
    if (!getenv("ONLOOKER_TEST_NO_STORMS")) test_storms(rounds / 4);
    if (!getenv("ONLOOKER_TEST_NO_FORK")) test_forks();
    peer_stop(&peer);
    path[strlen(path) - strlen("/agent.sock")] = 0;
    (void)rmdir(path);
    path[strlen(path) - strlen("/deep")] = 0;
    (void)rmdir(path);
    (void)rmdir(directory);
    return check_report("agent");
}
