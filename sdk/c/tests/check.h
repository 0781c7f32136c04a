// SPDX-License-Identifier: Apache-2.0
/* The tests' harness: CHECK counts and names what failed; check_report() prints the line that run-tests adds up. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <time.h>

static int check_passed, check_failed;

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (condition) {                                                                       \
            check_passed++;                                                                    \
        } else {                                                                               \
            check_failed++;                                                                    \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);            \
        }                                                                                      \
    } while (0)

#define CHECK_EQUAL(left, right)                                                               \
    do {                                                                                       \
        unsigned long long check_left = (unsigned long long)(left);                            \
        unsigned long long check_right = (unsigned long long)(right);                          \
        if (check_left == check_right) {                                                       \
            check_passed++;                                                                    \
        } else {                                                                               \
            check_failed++;                                                                    \
            fprintf(stderr, "%s:%d: failed: %s is %llu (0x%llx), not %s = %llu (0x%llx)\n",    \
                    __FILE__, __LINE__, #left, check_left, check_left, #right, check_right,    \
                    check_right);                                                              \
        }                                                                                      \
    } while (0)

/* Waits up to 10 s for something that another thread brings about. */
#define CHECK_SOON(condition)                                                                  \
    do {                                                                                       \
        int check_tries = 0;                                                                   \
        while (!(condition) && check_tries++ < 10000) check_sleep_ms(1);                       \
        CHECK(condition);                                                                      \
    } while (0)

static inline void check_sleep_ms(long ms) {
    struct timespec pause;
    pause.tv_sec = ms / 1000;
    pause.tv_nsec = ms % 1000 * 1000000;
    nanosleep(&pause, (struct timespec *)0);
}

static inline int check_report(const char *name) {
    printf("%s: %d passed, %d failed\n", name, check_passed, check_failed);
    fflush(stdout);
    return check_failed != 0;
}

#endif
