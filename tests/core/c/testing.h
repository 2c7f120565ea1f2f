/* testing.h: what the C programs of these tests share.
 *
 * A program is a list of TESTs. With the name of one it runs that one; without, each in a process
 * of its own. Exit status: 0, 1 (a CHECK failed), or SKIPPED. Children die with their parent, and
 * whatever hangs is ended by an alarm, so that nothing outlives a run. */
#ifndef PIX_TESTING_H
#define PIX_TESTING_H

#include "internal.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SKIPPED = 77,
    PATIENCE_S = 60 /* after which something is taken for hanging; no test measures time with it */
};

/* A test: a function that registers itself. Its name is how the driver calls it. */
#define TEST(name)                                                                                 \
    static void test_##name(void);                                                                 \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        static struct test test = {#name, test_##name, NULL};                                      \
        test_register(&test);                                                                      \
    }                                                                                              \
    static void test_##name(void)

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};
void test_register(struct test *test);
void skip(const char *reason) __attribute__((noreturn));

/* A check that does not hold ends the process, also where that is a child. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            check_failed(__FILE__, __LINE__, #condition);                                          \
    } while (0)
#define CHECK_EQUAL(actual, expected)                                                              \
    check_equal(__FILE__, __LINE__, #actual, (int64_t)(actual), (int64_t)(expected))
void check_failed(const char *file, int line, const char *condition) __attribute__((noreturn));
void check_equal(const char *file, int line, const char *what, int64_t actual, int64_t expected);

/* Names and files. Every name that was handed out is removed when the process that asked ends. */
const char *new_name(void);
const char *semaphore_path(const char *name); /* valid until the next call */
const char *segment_path(const char *name);   /* likewise */
void create_file(const char *name, uint64_t size, unsigned mode);
pix_segment *create_segment(const char *name); /* made anew, and open */
pix_segment *join_segment(const char *name);   /* one that is there */
void create_semaphore(const char *name);
/* The whole of a segment's file, mapped, without opening the segment. */
struct pix_layout *map_file(const char *name);

/* Words that all processes of one test see; they begin with 0. */
enum { SHARED_WORDS = 64 };
extern _Atomic uint64_t *shared;
void wait_until_shared(unsigned word, uint64_t at_least);

/* Children: forked, ended by their parent's end at the latest. */
pid_t start_child(void (*body)(const void *), const void *argument);
void kill_child(pid_t child);         /* and reap */
void expect_success(pid_t child);     /* reap one that exits with 0 */
void wait_until_stopped(pid_t child); /* by SIGSTOP */
void stop_here(void);                 /* the caller's own SIGSTOP */
void sleep_for_ever(void) __attribute__((noreturn));
/* Start a child that is stopped at the body's first stop_here(); 0 where processes cannot be
 * traced.
 */
pid_t start_traced(void (*body)(const void *), const void *argument);

/* The common case of each call. */
int claim(pix_segment *segment);
int publish(pix_segment *segment, int slot, uint32_t activities, uint32_t blocks, uint64_t stamp);
uint64_t summary_of(pix_segment *segment);
uint64_t revision_of(pix_segment *segment);
unsigned activities_in(uint64_t summary);
unsigned blocks_in(uint64_t summary);
int winner_in(uint64_t summary); /* the slot, or -1 */
unsigned slots_alive(pix_segment *segment);

/* How often to do what is done `full` times: less where PIX_EFFORT says a lower percentage. */
unsigned effort(unsigned full);

/* A stream of numbers that a seed determines (xorshift). */
uint64_t random_next(uint64_t *state);

#endif
