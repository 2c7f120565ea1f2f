/* testing.c: see testing.h. */
#define _GNU_SOURCE
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAMES 64

_Atomic uint64_t *shared;

static struct test *tests;
static pid_t root;
static struct {
    pid_t owner;
    char name[PIX_NAME_BYTES];
} names[NAMES];
static unsigned name_count;

void test_register(struct test *test)
{
    test->next = tests;
    tests = test;
}

void skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    exit(SKIPPED);
}

void check_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: not so: %s (errno: %s)\n", file, line, condition, strerror(errno));
    exit(1);
}

void check_equal(const char *file, int line, const char *what, int64_t actual, int64_t expected)
{
    if (actual == expected)
        return;
    fprintf(stderr, "%s:%d: %s is %lld, not %lld (errno: %s)\n", file, line, what,
            (long long)actual, (long long)expected, strerror(errno));
    exit(1);
}

/* ---- names and files ------------------------------------------------------------------------- */

static void remove_names(void)
{
    for (unsigned i = 0; i < name_count; i++) {
        if (names[i].owner != getpid()) /* a child's exit removes nothing of its parent's */
            continue;
        (void)shm_unlink(names[i].name);
        (void)unlink(segment_path(names[i].name)); /* a link */
        (void)rmdir(segment_path(names[i].name));
        (void)unlink(semaphore_path(names[i].name));
        (void)rmdir(semaphore_path(names[i].name));
    }
}

const char *new_name(void)
{
    CHECK(name_count < NAMES);
    unsigned index = name_count++;
    names[index].owner = getpid();
    (void)snprintf(names[index].name, sizeof names[index].name, "/pix-t%d-%d-%u", (int)root,
                   (int)getpid(), index);
    return names[index].name;
}

static const char *path_of(const char *prefix, const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "/dev/shm/%s%s", prefix, name + 1);
    return path;
}

const char *semaphore_path(const char *name)
{
    return path_of("sem.", name);
}

const char *segment_path(const char *name)
{
    return path_of("", name);
}

void create_file(const char *name, uint64_t size, unsigned mode)
{
    int descriptor = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(descriptor >= 0);
    CHECK_EQUAL(ftruncate(descriptor, (off_t)size), 0);
    CHECK_EQUAL(fchmod(descriptor, mode), 0);
    CHECK_EQUAL(close(descriptor), 0);
}

pix_segment *create_segment(const char *name)
{
    pix_segment *segment;
    create_file(name, 0, 0600);
    CHECK_EQUAL(pix_open(name, 0, PIX_MADE, &segment), PIX_OK);
    return segment;
}

pix_segment *join_segment(const char *name)
{
    pix_segment *segment;
    CHECK_EQUAL(pix_open(name, 0, PIX_JOIN, &segment), PIX_OK);
    return segment;
}

void create_semaphore(const char *name)
{
    sem_t *semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    CHECK(semaphore != SEM_FAILED);
    CHECK_EQUAL(sem_close(semaphore), 0);
}

struct pix_layout *map_file(const char *name)
{
    int descriptor = shm_open(name, O_RDWR, 0);
    CHECK(descriptor >= 0);
    void *memory = mmap(NULL, PIX_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_EQUAL(close(descriptor), 0);
    return memory;
}

/* ---- processes ------------------------------------------------------------------------------- */

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* A child whose check failed says nothing more, and what it was to say must not be waited for. */
static void expect_no_failed_child(void)
{
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0)
        CHECK(info.si_code != CLD_EXITED || info.si_status == 0);
}

void wait_until_shared(unsigned word, uint64_t at_least)
{
    while (shared[word] < at_least) {
        nap(); /* for ever: the alarm ends what hangs */
        expect_no_failed_child();
    }
}

pid_t start_child(void (*body)(const void *), const void *argument)
{
    pid_t parent = getpid();
    (void)fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        body(argument);
        exit(0);
    }
    return child;
}

static int reap(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        CHECK_EQUAL(errno, EINTR);
    return status;
}

void kill_child(pid_t child)
{
    CHECK_EQUAL(kill(child, SIGKILL), 0);
    (void)reap(child);
}

void expect_success(pid_t child)
{
    CHECK_EQUAL(reap(child), 0);
}

void wait_until_stopped(pid_t child)
{
    int status;
    CHECK_EQUAL(waitpid(child, &status, WUNTRACED), child);
    CHECK(WIFSTOPPED(status));
}

void stop_here(void)
{
    (void)raise(SIGSTOP);
}

void sleep_for_ever(void)
{
    for (;;)
        (void)pause();
}

struct traced {
    void (*body)(const void *);
    const void *argument;
};

static void run_traced(const void *what)
{
    const struct traced *child = what;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(SKIPPED);
    child->body(child->argument);
    sleep_for_ever(); /* what it opened stays so while its tracer looks at the end */
}

pid_t start_traced(void (*body)(const void *), const void *argument)
{
    int status;
    pid_t child = start_child(run_traced, &(const struct traced){body, argument});
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        return 0;
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    return child;
}

/* ---- the core -------------------------------------------------------------------------------- */

int claim(pix_segment *segment)
{
    return pix_claim(segment, 0, (uint32_t)getpid(), "main", 4, "", 0);
}

int publish(pix_segment *segment, int slot, uint32_t activities, uint32_t blocks, uint64_t stamp)
{
    return pix_publish(segment, slot, activities, blocks, stamp, 1, "test", 4, "text", 4);
}

uint64_t summary_of(pix_segment *segment)
{
    return segment->map->summary;
}

uint64_t revision_of(pix_segment *segment)
{
    return segment->map->revision;
}

unsigned activities_in(uint64_t summary)
{
    return summary & 0xffff;
}

unsigned blocks_in(uint64_t summary)
{
    return summary >> PIX_SUMMARY_BLOCKS & 0xffff;
}

int winner_in(uint64_t summary)
{
    return (int)(summary >> PIX_SUMMARY_WINNER & 0x7ff) - 1;
}

unsigned slots_alive(pix_segment *segment)
{
    uint64_t live[PIX_WORDS];
    unsigned count = 0;
    CHECK_EQUAL(pix_live(segment, live), PIX_OK);
    for (unsigned i = 0; i < PIX_WORDS; i++)
        count += (unsigned)__builtin_popcountll(live[i]);
    return count;
}

unsigned effort(unsigned full)
{
    const char *percent = getenv("PIX_EFFORT");
    unsigned rounds = percent != NULL ? full * (unsigned)atoi(percent) / 100 : full;
    return rounds != 0 ? rounds : 1;
}

uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The process that the driver knows, whose pid is in the names that may have to be tidied up. */
#define ROOT_VARIABLE "PIX_TEST_ROOT"

static void begin(void)
{
    char text[16];
    const char *given = getenv(ROOT_VARIABLE);
    root = given != NULL ? atoi(given) : getpid();
    (void)snprintf(text, sizeof text, "%d", (int)root);
    CHECK_EQUAL(setenv(ROOT_VARIABLE, text, 1), 0);
    shared = mmap(NULL, SHARED_WORDS * sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    CHECK_EQUAL(atexit(remove_names), 0);
    (void)alarm(PATIENCE_S);
}

/* A program of its own, not only a process: nothing is inherited from the others' runs. */
static void run_alone(const void *name)
{
    (void)execl("/proc/self/exe", "test", (const char *)name, (char *)NULL);
    check_failed(__FILE__, __LINE__, "exec");
}

static int run_all(void)
{
    int failed = 0;
    for (struct test *test = tests; test != NULL; test = test->next) {
        (void)alarm(PATIENCE_S);
        int status = reap(start_child(run_alone, test->name));
        bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
        if (status != 0 && !skipped) {
            fprintf(stderr, "%s failed: wait status %d\n", test->name, status);
            failed = 1;
        }
    }
    return failed;
}

int main(int count, char **arguments)
{
    begin();
    if (count < 2)
        return run_all();
    for (struct test *test = tests; test != NULL; test = test->next) {
        if (strcmp(test->name, arguments[1]) == 0) {
            test->run();
            return 0;
        }
    }
    fprintf(stderr, "no test is called %s\n", arguments[1]);
    return 2;
}
