// SPDX-License-Identifier: Apache-2.0
/* Section counters of a program made of several files, linked in different ways by run-tests:
 *     section published          they are published, and increments go straight into the slab
 *     section disabled           ONLOOKER_DISABLE=1: nothing of the SDK runs, and the program counts all the same
 *     section declined           the section does not own its pages: says so, and the program counts all the same
 *     section late               -DONLOOKER_START_LATE: no thread before onlooker_start(), in a daemon's child neither
 *     section library FILE       the program has none (-DNO_COUNTERS); the library FILE, loaded and unloaded again, has its own */
#define ONLOOKER_IMPLEMENTATION
#include "../onlooker.h"

#include "check.h"
#include "peer.h"
#include <dirent.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifndef NO_COUNTERS
ONLOOKER_COUNTER(main_total, "things", "Things");
ONLOOKER_GAUGE_F64(main_ratio, "ratio", "Ratio", "of", "main");
ONLOOKER_COUNTER_AS(main_seconds, "busy_seconds_total", 1e-9, "seconds", "Busy", "where", "main");
extern onlooker_counter_t more_total ONLOOKER_HIDDEN;
void count_more(unsigned n);
uint64_t count_local(void);
#endif

static size_t section_offset(const void *variable) { return (size_t)((const unsigned char *)variable - __start_onlooker_data); }

#ifndef NO_COUNTERS
static void count(void) {
    onlooker_counter_add(&main_total, 7);
    onlooker_gauge_f64_set(&main_ratio, 0.25);
    count_more(5);
    CHECK_EQUAL(onlooker_counter_value(&main_total), 7);
    CHECK_EQUAL(onlooker_counter_value(&more_total), 5);
    CHECK_EQUAL(count_local(), 5);
}

static void test_published(const char *path) {
    static peer_t peer;
    onlooker_status_t status;
    count();
    onlooker_status(&status);
    CHECK_EQUAL(status.errors, 0);
    CHECK_EQUAL(status.regions, 1);
    if (status.errors) fprintf(stderr, "%s\n", status.error);
    peer_start(&peer, path, PEER_GOOD);
    CHECK_EQUAL(onlooker_wait(10000), 0);
    CHECK(strstr(peer.request, "\"name\":\"section_test\"") && strstr(peer.request, "\"name\":\"main_total\"") &&
          strstr(peer.request, "\"name\":\"more_total\"") && strstr(peer.request, "\"name\":\"local_total\"") &&
          strstr(peer.request, "\"name\":\"busy_seconds_total\",\"metric\":\"counter\",\"type\":\"u64\""));
    CHECK(strstr(peer.request, "\"array\":{\"label\":\"worker\",\"count\":4,\"stride\":8}"));
    count_more(1);
    CHECK_EQUAL(peer_section_word(&peer, section_offset(&main_total)), 7);
    CHECK_EQUAL(peer_section_word(&peer, section_offset(&more_total)), 6);
    peer_stop(&peer);
    count_more(1);
    CHECK_EQUAL(onlooker_counter_value(&more_total), 7);
}

static int threads(void) {
    DIR *d = opendir("/proc/self/task");
    struct dirent *entry;
    int n = 0;
    while (d && (entry = readdir(d)) != (struct dirent *)0) n += entry->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void test_late(const char *path) {
    static peer_t peer;
    onlooker_status_t status;
    int result = -1;
    pid_t child;
    onlooker_counter_add(&main_total, 7);
    CHECK_EQUAL(threads(), 1);
    onlooker_status(&status);
    CHECK(status.state == ONLOOKER_IDLE && status.regions == 1);
    child = fork(); /* a daemon */
    if (child == 0) {
        check_failed = 0;
        CHECK_EQUAL(threads(), 1);
        peer_start(&peer, path, PEER_GOOD);
        CHECK_EQUAL(onlooker_wait(50), -1);
        CHECK_EQUAL(PEER_GET(peer.hellos), 0);
        onlooker_start();
        CHECK_EQUAL(onlooker_wait(10000), 0);
        onlooker_counter_add(&main_total, 1);
        CHECK_EQUAL(peer_section_word(&peer, section_offset(&main_total)), 8);
        onlooker_start(); /* nothing more */
        CHECK_EQUAL(onlooker_wait(0), 0);
        peer_stop(&peer);
        _exit(check_failed != 0);
    }
    CHECK_EQUAL(waitpid(child, &result, 0), child);
    CHECK_EQUAL(result, 0);
    CHECK_EQUAL(onlooker_counter_value(&main_total), 7);
    CHECK_EQUAL(threads(), 1);
}

static void test_disabled(void) {
    onlooker_status_t status;
    onlooker_region_t *region = onlooker_region("disabled");
    onlooker_counter_t *counter;
    FILE *threads = popen("ls /proc/$PPID/task | wc -l", "r");
    int n = 0;
    count();
    onlooker_new_counter(region, &counter, "x_total", "", "");
    CHECK_EQUAL(onlooker_open(region), 0);
    onlooker_counter_inc(counter);
    CHECK_EQUAL(onlooker_counter_value(counter), 1);
    onlooker_status(&status);
    CHECK_EQUAL(status.state, ONLOOKER_DISABLED);
    CHECK_EQUAL(onlooker_wait(0), -1);
    CHECK(threads && fscanf(threads, "%d", &n) == 1 && n == 1);
    if (threads) (void)pclose(threads);
}

static void test_declined(void) {
    onlooker_status_t status;
    count();
    onlooker_status(&status);
    CHECK_EQUAL(status.regions, 0);
    CHECK_EQUAL(status.errors, 1);
    CHECK(strstr(status.error, "does not own its pages") && strstr(status.error, "-flto"));
}
#endif

static void no_more_files(int none) {
    static struct rlimit before;
    struct rlimit limit;
    if (none) (void)getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    if (none) limit.rlim_cur = 0;
    CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A child that no fork handler has seen has none of the library's threads, and ends all the same. */
static void library_in_raw_child(void) {
    int status = -1;
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        (void)alarm(10);
        exit(7);
    }
    CHECK_EQUAL(waitpid((pid_t)child, &status, 0), child);
    CHECK_EQUAL(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 7);
}

static void test_library(const char *path, const char *file) {
    static peer_t peer;
    int round;
    onlooker_status_t status;
    onlooker_status(&status);
    CHECK_EQUAL(status.regions, 0);
    peer_start(&peer, path, PEER_GOOD);
    for (round = 0; round < 3; round++) {
        void *library = dlopen(file, RTLD_NOW), *symbol;
        unsigned long (*library_count)(void);
        int closed = PEER_GET(peer.closed);
        CHECK(library != (void *)0);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            break;
        }
        symbol = dlsym(library, "library_count");
        CHECK(symbol != (void *)0);
        if (!symbol) break;
        memcpy(&library_count, &symbol, sizeof symbol);
        (void)library_count();
        CHECK_SOON(PEER_GET(peer.publishes) == round + 1);
        CHECK(strstr(peer.request, "\"op\":\"create\",\"name\":\"libsection\""));
        CHECK_EQUAL(library_count(), 2); /* offset 0 of the library's section */
        CHECK_EQUAL(peer_section_word(&peer, 0), 2);
        if (round == 1) library_in_raw_child();
        if (round == 2) no_more_files(1); /* nothing that the thread is stopped by may need a descriptor, or /proc */
        (void)alarm(10);
        CHECK_EQUAL(dlclose(library), 0);
        (void)alarm(0);
        if (round == 2) no_more_files(0);
        CHECK_SOON(PEER_GET(peer.closed) == closed + 1);
        CHECK(dlopen(file, RTLD_NOW | RTLD_NOLOAD) == (void *)0);
    }
    peer_stop(&peer);
}

int main(int argc, char **argv) {
    char directory[] = "/tmp/onlooker-test-XXXXXX", path[100];
    if (argc < 2) return 2;
    if (!getenv("ONLOOKER_TEST_DIRECTORY")) { /* the constructor has run: begin again with the socket's path in the environment */
        if (!mkdtemp(directory)) return 2;
        (void)snprintf(path, sizeof path, "%s/agent.sock", directory);
        (void)setenv("ONLOOKER_SOCKET", path, 1);
        (void)setenv("ONLOOKER_TEST_DIRECTORY", directory, 1);
        execv("/proc/self/exe", argv);
        return 2;
    }
    (void)snprintf(path, sizeof path, "%s", getenv("ONLOOKER_SOCKET"));
#ifndef NO_COUNTERS
    if (strcmp(argv[1], "published") == 0) test_published(path);
    if (strcmp(argv[1], "late") == 0) test_late(path);
    if (strcmp(argv[1], "disabled") == 0) test_disabled();
    if (strcmp(argv[1], "declined") == 0) test_declined();
#else
    if (section_offset(__start_onlooker_data) != 0) return 2;
#endif
    if (strcmp(argv[1], "library") == 0) test_library(path, argv[2]);
    (void)rmdir(getenv("ONLOOKER_TEST_DIRECTORY"));
    return check_report(argv[1]);
}
