/* kill_at_random.c: four workers hammer one segment, and are killed one after the other at random
 * instants; nobody else may be hurt.
 *
 *     kill_at_random KILLS SEED
 *
 * Linked with --wrap for the functions at which a worker enters and leaves the critical section,
 * claims and recovers. The wrappers keep, in memory of the test, the phase that each worker is in,
 * wait there at random so that deaths fall into it, and run two detectors of overlap that know
 * nothing of each other:
 *
 *   - a word that says who is inside: on entry it names nobody, or one whose byte in a file of the
 *     test is free, which is to say a dead one;
 *   - a byte of another file that whoever is inside holds locked: locking it never fails.
 *
 * A dying process closes its files one by one, in an order that is the kernel's and has changed
 * over time: the lock may be free to take some microseconds before a detector's byte is. So a
 * detector is two files, with descriptors below and above the segment's, of which one is closed
 * first in either order; a byte is taken where it is taken in both.
 *
 * Prints a table of the deaths: how many fell into each phase, and how long it took from a kill
 * inside the critical section until the next got in. The figures are told, not judged: how long a
 * death takes and when a waiter runs is the machine's. Exits with 1, and says why, if anything is
 * wrong.
 *
 * With -DBREAK_IGNORE_OWNER the lock is taken whoever has it; with -DBREAK_ROB_THE_LIVING every
 * owner is taken for dead. Such runs must fail: they show that the detectors detect. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    WORKERS = 4,
    WEDGED_S = 5, /* without any progress; ten times what was ever seen, and more */
    TRIES = 20,   /* of an operation that may find the lock busy on an overloaded machine */
    ABOVE = 500,  /* descriptors from here on are above the segment's */
    LIVES = 65536 /* of workers, one after the other in WORKERS places */
};

enum phase { OUTSIDE = 0, CLAIMING = 1, CRITICAL = 2, RECOVERY = 4 };

struct worker {
    _Atomic unsigned phase; /* bits: a claim goes through the critical section too */
    _Atomic uint64_t progress;
};

/* How a life ended. A death after which nobody had to be robbed of the lock has no next_ns. */
struct death {
    _Atomic unsigned phase;
    _Atomic uint64_t killed_ns; /* just before the kill */
    _Atomic uint64_t next_ns;   /* when the next got in, after a death inside */
};

/* What the parent and all workers share, beside the segment. */
struct board {
    _Atomic uint64_t inside; /* who is in the critical section: the number of a life, or 0 */
    _Atomic uint64_t overlaps_in_memory;
    _Atomic uint64_t overlaps_in_kernel;
    _Atomic uint64_t entries;
    _Atomic uint64_t revision; /* the highest that anybody saw */
    _Atomic int stop;
    _Atomic int failed;
    struct worker worker[WORKERS];
    struct death death[LIVES];
};

static struct board *board;

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "pid %d: ", (int)getpid());
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    board->failed = 1;
}

static void raise_to(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t now = *word;
    while (now < value && !atomic_compare_exchange_weak(word, &now, value))
        ;
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- the detectors, and where a worker is -----------------------------------------------------
 */

static struct worker *me; /* NULL in the parent, which is not watched */
static uint64_t my_life;
static uint64_t my_random;
static struct detector {
    int below, above;
} lives,            /* byte N is locked while life N lasts */
    inside;         /* byte 0 is locked by whoever is inside */
static bool taking; /* within lock_take */
static bool entered;

static void linger(unsigned one_in)
{
    if (random_next(&my_random) % one_in != 0)
        return;
    uint64_t until = sys_clock_ns() + 10000 + random_next(&my_random) % 190000;
    while (sys_clock_ns() < until)
        ;
}

static bool is_taken(const struct detector *detector, uint64_t byte)
{
    return sys_byte_probe(detector->below, (int64_t)byte) != SYS_BYTE_FREE &&
           sys_byte_probe(detector->above, (int64_t)byte) != SYS_BYTE_FREE;
}

static bool lock_byte(const struct detector *detector, uint64_t byte)
{
    bool below = sys_byte_lock(detector->below, (int64_t)byte) == 0;
    bool above = sys_byte_lock(detector->above, (int64_t)byte) == 0;
    return below || above;
}

static void unlock_byte(const struct detector *detector, uint64_t byte)
{
    sys_byte_unlock(detector->below, (int64_t)byte);
    sys_byte_unlock(detector->above, (int64_t)byte);
}

static void check_predecessor(uint64_t predecessor)
{
    if (predecessor == 0)
        return;
    if (is_taken(&lives, predecessor))
        board->overlaps_in_memory++;
    else /* it died inside, and we are the first there since */
        board->death[predecessor % LIVES].next_ns = sys_clock_ns();
}

static void enter(unsigned phase)
{
    me->phase |= phase;
    if (entered)
        return;
    entered = true;
    board->entries++;
    check_predecessor(atomic_exchange(&board->inside, my_life));
    if (!lock_byte(&inside, 0))
        board->overlaps_in_kernel++;
}

static void go_out(void)
{
    entered = false;
    unlock_byte(&inside, 0);
    if (atomic_exchange(&board->inside, 0) != my_life)
        board->overlaps_in_memory++;
}

int __real_lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns);
void __real_lock_drop(struct pix_segment *segment);
void __real_slot_reap(struct pix_segment *segment);
int __real_lease_recount(struct pix_segment *segment);
void __real_lease_clear(struct pix_layout *map, unsigned slot);
int __real_sys_byte_lock(int descriptor, int64_t byte);
enum sys_byte __real_sys_byte_probe(int descriptor, int64_t byte);
uint64_t __real_sys_clock_coarse_ns(void);
int __wrap_lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns);
void __wrap_lock_drop(struct pix_segment *segment);
void __wrap_slot_reap(struct pix_segment *segment);
int __wrap_lease_recount(struct pix_segment *segment);
void __wrap_lease_clear(struct pix_layout *map, unsigned slot);
int __wrap_sys_byte_lock(int descriptor, int64_t byte);
enum sys_byte __wrap_sys_byte_probe(int descriptor, int64_t byte);
uint64_t __wrap_sys_clock_coarse_ns(void);

#ifdef BREAK_IGNORE_OWNER
static int take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns)
{
    (void)deadline_ns;
    segment->map->lock = segment->generation[slot] << 16 | (slot + 1);
    return PIX_OK;
}
#else
static int take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns)
{
    return __real_lock_take(segment, slot, deadline_ns);
}
#endif

#ifdef BREAK_ROB_THE_LIVING
bool __wrap_slot_is_dead(struct pix_segment *segment, unsigned slot);
bool __wrap_slot_is_dead(struct pix_segment *segment, unsigned slot)
{
    (void)segment;
    (void)slot;
    return true;
}
#endif

int __wrap_lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns)
{
    if (me == NULL)
        return take(segment, slot, deadline_ns);
    taking = true;
    int result = take(segment, slot, deadline_ns);
    taking = false;
    if (result == PIX_OK) {
        enter(CRITICAL);
        linger(4);
    }
    return result;
}

void __wrap_lock_drop(struct pix_segment *segment)
{
    if (me != NULL) {
        linger(8);
        go_out();
        me->phase = OUTSIDE; /* now: waking the next one may take long, and the lock is free then */
    }
    __real_lock_drop(segment);
}

/* Within lock_take these two are recovery, and the lock is ours already. */
void __wrap_slot_reap(struct pix_segment *segment)
{
    if (taking) {
        enter(CRITICAL | RECOVERY);
        linger(1);
    }
    __real_slot_reap(segment);
}

int __wrap_lease_recount(struct pix_segment *segment)
{
    if (taking)
        linger(1);
    int result = __real_lease_recount(segment);
    if (taking) {
        linger(1);
        me->phase &= ~(unsigned)RECOVERY;
    }
    return result;
}

void __wrap_lease_clear(struct pix_layout *map, unsigned slot)
{
    if (me != NULL)
        linger(taking ? 1 : 16);
    __real_lease_clear(map, slot);
}

static bool is_detector(int descriptor)
{
    return descriptor == lives.below || descriptor == lives.above || descriptor == inside.below ||
           descriptor == inside.above;
}

/* The byte of a slot: a claim begins. */
int __wrap_sys_byte_lock(int descriptor, int64_t byte)
{
    int result = __real_sys_byte_lock(descriptor, byte);
    if (me != NULL && result == 0 && byte < PIX_SLOTS && !is_detector(descriptor)) {
        me->phase |= CLAIMING;
        linger(4);
    }
    return result;
}

/* A recoverer asks slot by slot who lives. */
enum sys_byte __wrap_sys_byte_probe(int descriptor, int64_t byte)
{
    if (me != NULL && taking && entered && !is_detector(descriptor))
        linger(1);
    return __real_sys_byte_probe(descriptor, byte);
}

/* A publish has changed everything, and not yet let go. */
uint64_t __wrap_sys_clock_coarse_ns(void)
{
    if (me != NULL)
        linger(8);
    return __real_sys_clock_coarse_ns();
}

/* ---- a worker ----------------------------------------------------------------------------------
 */

static int reopen(const char *number, int at_least)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%s", number);
    int opened = open(path, O_RDWR | O_CLOEXEC); /* a description of its own */
    int moved = fcntl(opened, F_DUPFD_CLOEXEC, at_least);
    (void)close(opened);
    return moved;
}

static void open_detector(struct detector *detector, char **numbers)
{
    detector->below = reopen(numbers[0], 0);
    detector->above = reopen(numbers[1], ABOVE);
}

/* BUSY is lawful: the machine may be so loaded that a holder is not run for 50 ms. */
static void check_result(const char *what, int result)
{
    if (result >= 0)
        me->progress++;
    else if (result != PIX_BUSY)
        fail("%s: %d (%s)", what, result, strerror(errno));
}

static void commit_something(pix_segment *segment)
{
    uint64_t identity[5] = {random_next(&my_random) % 8};
    uint64_t seen = board->revision;
    uint64_t revision = 0;
    int if_new = (int)(random_next(&my_random) % 2);
    int result = pix_commit(segment, identity, if_new, 0, &revision);
    check_result("commit", result);
    if (result != PIX_OK)
        return;
    if (revision < seen || (!if_new && revision == seen))
        fail("the revision went from %" PRIu64 " to %" PRIu64, seen, revision);
    raise_to(&board->revision, revision);
}

static void publish_something(pix_segment *segment, int slot)
{
    static const char text[] = "a message of some length, of which a random part is published";
    uint32_t activities = (uint32_t)(random_next(&my_random) % 4);
    uint32_t blocks = (uint32_t)(random_next(&my_random) % 3);
    size_t length = random_next(&my_random) % sizeof text;
    check_result("publish", pix_publish(segment, slot, activities, blocks, sys_clock_ns(), 1,
                                        "worker", 6, text, length));
}

static void be_an_agent(pix_segment *segment)
{
    int slot = pix_claim(segment, 0, (uint32_t)getpid(), "worker", 6, "", 0);
    check_result("claim", slot);
    if (slot < 0)
        return;
    for (uint64_t i = random_next(&my_random) % 6; i > 0; i--) {
        publish_something(segment, slot);
        if (random_next(&my_random) % 4 == 0)
            commit_something(segment);
    }
    if (random_next(&my_random) % 4 != 0) /* else it leaves as the dead leave */
        pix_release(segment, slot);
}

static void use_the_segment(const char *name)
{
    pix_segment *segment;
    int result = pix_open(name, 0, PIX_JOIN, &segment);
    check_result("open", result);
    if (result != PIX_OK)
        return;
    for (uint64_t i = random_next(&my_random) % 8; i > 0; i--)
        be_an_agent(segment);
    commit_something(segment); /* where the last agent is gone: as a visitor */
    pix_close(segment);
}

static int work(char **arguments)
{
    const char *name = arguments[2];
    unsigned place = (unsigned)atoi(arguments[3]);
    my_life = strtoull(arguments[4], NULL, 10);
    my_random = strtoull(arguments[5], NULL, 10);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != atoi(arguments[6]))
        return 0;
    open_detector(&lives, &arguments[7]);
    open_detector(&inside, &arguments[9]);
    if (!lock_byte(&lives, my_life)) {
        fail("no detectors: %s", strerror(errno));
        return 1;
    }
    me = &board->worker[place];
    while (!board->stop)
        use_the_segment(name);
    return 0;
}

/* ---- the parent --------------------------------------------------------------------------------
 */

static char name[PIX_NAME_BYTES];
static int board_file;
static struct detector parents_lives, parents_inside;
static pid_t workers[WORKERS];
static uint64_t life_in[WORKERS];
static uint64_t births;
static uint64_t seed;

static void start_worker(unsigned place)
{
    life_in[place] = ++births;
    char texts[9][24];
    char *arguments[12] = {"kill_at_random", texts[8], name};
    const uint64_t numbers[8] = {place,
                                 life_in[place],
                                 random_next(&seed),
                                 (uint64_t)getpid(),
                                 (uint64_t)parents_lives.below,
                                 (uint64_t)parents_lives.above,
                                 (uint64_t)parents_inside.below,
                                 (uint64_t)parents_inside.above};
    (void)snprintf(texts[8], sizeof texts[8], "worker=%d", board_file);
    for (unsigned i = 0; i < 8; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "%" PRIu64, numbers[i]);
        arguments[i + 3] = texts[i];
    }
    board->worker[place].phase = OUTSIDE;
    if (posix_spawn(&workers[place], "/proc/self/exe", NULL, NULL, arguments, environ) != 0)
        fail("a worker cannot be started: %s", strerror(errno));
}

static void nap_us(uint64_t microseconds)
{
    struct timespec time = {.tv_sec = (time_t)(microseconds / 1000000),
                            .tv_nsec = (long)(microseconds % 1000000 * 1000)};
    (void)nanosleep(&time, NULL);
}

static uint64_t progress(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < WORKERS; i++)
        sum += board->worker[i].progress;
    return sum;
}

static bool is_wedged(void)
{
    static uint64_t last, last_ns;
    uint64_t now = progress();
    if (now != last || last_ns == 0) {
        last = now;
        last_ns = sys_clock_ns();
    }
    return sys_clock_ns() - last_ns > WEDGED_S * UINT64_C(1000000000);
}

static void kill_one(unsigned place)
{
    struct death *death = &board->death[life_in[place]];
    int status;
    death->killed_ns = sys_clock_ns();
    (void)kill(workers[place], SIGKILL);
    (void)waitpid(workers[place], &status, 0);
    if (!WIFSIGNALED(status))
        fail("a worker ended by itself: status %d", status);
    death->phase = board->worker[place].phase;
}

/* Who recovers from the death of `first`, a random time after it began; else anybody. */
static unsigned recoverer(unsigned first)
{
    uint64_t until = sys_clock_ns() + UINT64_C(5000000);
    while (sys_clock_ns() < until) {
        for (unsigned place = 0; place < WORKERS; place++) {
            if (place != first && (board->worker[place].phase & RECOVERY) != 0) {
                nap_us(random_next(&seed) % 600);
                return place;
            }
        }
    }
    return (first + 1) % WORKERS;
}

/* One dies, then often another: soon, or while it recovers from the first death. Returns how many.
 */
static unsigned kill_some(void)
{
    unsigned first = (unsigned)(random_next(&seed) % WORKERS);
    unsigned second = (first + (unsigned)(random_next(&seed) % WORKERS)) % WORKERS;
    nap_us(random_next(&seed) % 9000);
    kill_one(first);
    if ((board->worker[first].phase & CRITICAL) != 0 && random_next(&seed) % 2 == 0)
        second = recoverer(first);
    else
        nap_us(random_next(&seed) % 400);
    if (second != first) {
        kill_one(second);
        start_worker(second);
    }
    start_worker(first);
    return second == first ? 1 : 2;
}

/* Looks all the time whether the revision goes back. */
static void *monitor(void *map)
{
    const struct pix_layout *layout = map;
    while (!board->stop) {
        uint64_t seen = board->revision;
        uint64_t now = layout->revision;
        if (now < seen)
            fail("the revision went back from %" PRIu64 " to %" PRIu64, seen, now);
        if (now >> PIX_RETIRED_BIT != 0)
            fail("the segment was retired");
        raise_to(&board->revision, now);
        nap_us(50);
    }
    return NULL;
}

static int try_to_claim(pix_segment *segment)
{
    int slot = PIX_BUSY;
    for (int i = 0; i < TRIES && slot == PIX_BUSY; i++)
        slot = pix_claim(segment, 0, 1, "newcomer", 8, "", 0);
    return slot;
}

static int try_to_publish(pix_segment *segment, int slot, uint32_t activities, uint32_t blocks)
{
    int result = PIX_BUSY;
    for (int i = 0; i < TRIES && result == PIX_BUSY; i++)
        result = pix_publish(segment, slot, activities, blocks, sys_clock_ns(), 1, "", 0, "", 0);
    return result;
}

/* Amid the workers, a newcomer and each survivor get through. */
static void check_progress(pix_segment *segment)
{
    uint64_t before[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++)
        before[i] = board->worker[i].progress;
    int slot = try_to_claim(segment);
    if (slot < 0 || try_to_publish(segment, slot, 1, 1) != PIX_OK)
        fail("a newcomer does not get through: %d", slot);
    else
        pix_release(segment, slot);
    for (unsigned i = 0; i < WORKERS; i++) {
        for (int tries = 0; board->worker[i].progress == before[i]; tries++) {
            if (tries > WEDGED_S * 1000) {
                fail("worker %u does not get through", i);
                break;
            }
            nap_us(1000);
        }
    }
}

static void stop_workers(void)
{
    board->stop = 1;
    for (unsigned i = 0; i < WORKERS; i++) {
        int status;
        pid_t ended = 0;
        for (int tries = 0; ended == 0 && tries < WEDGED_S * 1000; tries++) {
            ended = waitpid(workers[i], &status, WNOHANG);
            if (ended == 0)
                nap_us(1000);
        }
        if (ended == 0) {
            fail("worker %u does not end", i);
            (void)kill(workers[i], SIGKILL);
            (void)waitpid(workers[i], &status, 0);
        } else if (status != 0) {
            fail("worker %u ended with status %d", i, status);
        }
    }
}

struct counts {
    uint64_t activities, blocks;
};

/* Our own sum over the slots, independent of the core's. */
static struct counts sum_of(const struct pix_layout *map, const uint64_t slots[PIX_WORDS])
{
    struct counts sum = {0, 0};
    for (unsigned slot = 0; slot < PIX_SLOTS; slot++) {
        if ((slots[slot / 64] >> slot % 64 & 1) == 0)
            continue;
        struct pix_details details;
        const struct pix_slot *from = &map->slot[slot];
        memcpy(&details, (const void *)from->details[from->sequence % 2], sizeof details);
        sum.activities += details.activities;
        sum.blocks += details.blocks;
    }
    return sum;
}

static void check_summary(pix_segment *segment, const char *when)
{
    uint64_t live[PIX_WORDS];
    uint64_t word;
    int ghosts;
    if (pix_live(segment, live) != PIX_OK || pix_look(segment, &word, &ghosts) != PIX_OK) {
        fail("%s: cannot look", when);
        return;
    }
    struct counts sum = sum_of(segment->map, live);
    if ((word & 0xffff) != sum.activities || (word >> PIX_SUMMARY_BLOCKS & 0xffff) != sum.blocks)
        fail("%s: the summary says %" PRIu64 " and %" PRIu64 ", the live slots %" PRIu64
             " and %" PRIu64,
             when, word & 0xffff, word >> PIX_SUMMARY_BLOCKS & 0xffff, sum.activities, sum.blocks);
}

static void check_nothing_left(pix_segment *segment)
{
    const struct pix_layout *map = segment->map;
    if (map->lock != 0)
        fail("the lock is left taken: %" PRIx64, map->lock);
    if ((map->summary & UINT32_MAX) != 0 || map->activities != 0 || map->blocks != 0)
        fail("the sums are not 0 after all have left");
    for (unsigned slot = 0; slot < PIX_SLOTS; slot++) {
        if (sys_byte_probe(segment->descriptor, slot) != SYS_BYTE_FREE)
            fail("slot %u is still taken", slot);
        if ((map->used[slot / 64] >> slot % 64 & 1) != 0 || map->rank[slot] != 0)
            fail("slot %u still counts", slot);
    }
}

static void check_the_end(pix_segment *segment)
{
    check_summary(segment, "after all have stopped");
    int slot = try_to_claim(segment);
    if (slot < 0 || try_to_publish(segment, slot, 3, 2) != PIX_OK) {
        fail("a newcomer does not get through after all have stopped: %d", slot);
        return;
    }
    check_summary(segment, "with a newcomer");
    if ((segment->map->summary & UINT32_MAX) != (3 | 2u << PIX_SUMMARY_BLOCKS))
        fail("the newcomer is not alone in the summary");
    pix_release(segment, slot);
    check_nothing_left(segment);
}

static unsigned run(pix_segment *segment, unsigned kills)
{
    unsigned killed = 0;
    pthread_t monitor_thread;
    if (pthread_create(&monitor_thread, NULL, monitor, segment->map) != 0) {
        fail("no monitor");
        return 0;
    }
    for (unsigned i = 0; i < WORKERS; i++)
        start_worker(i);
    while (killed < kills && !board->failed) {
        killed += kill_some();
        if (is_wedged())
            fail("wedged: nobody has got through for %d s", WEDGED_S);
    }
    if (!board->failed)
        check_progress(segment);
    stop_workers();
    (void)pthread_join(monitor_thread, NULL);
    return killed;
}

/* ---- the figures -------------------------------------------------------------------------------
 */

/* A death counts once, by the rarest thing that its worker was at: claims and recoveries go through
 * the critical section too. */
static const struct {
    const char *name;
    unsigned phase;
} rows[] = {
    {"recovery", RECOVERY}, {"claiming", CLAIMING}, {"critical", CRITICAL}, {"outside", OUTSIDE}};

enum { ROWS = sizeof rows / sizeof *rows };

static unsigned row_of(unsigned phase)
{
    unsigned row = 0;
    while (row < ROWS - 1 && (phase & rows[row].phase) == 0)
        row++;
    return row;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static double ms_at(const uint64_t *sorted, unsigned count, unsigned percent)
{
    return (double)sorted[(count * percent + 99) / 100 - 1] / 1e6;
}

static void judge_row(unsigned row)
{
    static uint64_t took_ns[LIVES];
    unsigned deaths = 0, followed = 0;
    for (uint64_t life = 1; life <= births; life++) {
        const struct death *death = &board->death[life];
        if (death->killed_ns == 0 || row_of(death->phase) != row)
            continue;
        deaths++;
        if (death->next_ns > death->killed_ns)
            took_ns[followed++] = death->next_ns - death->killed_ns;
    }
    if (deaths == 0)
        fail("no death fell into the phase \"%s\": nothing is shown", rows[row].name);
    printf("  %-10s %6u   ", rows[row].name, deaths);
    if (followed == 0) {
        printf("%8u        -        -        -\n", followed);
        if ((rows[row].phase & (CRITICAL | RECOVERY)) != 0)
            fail("nobody got in after a death in the phase \"%s\"", rows[row].name);
        return;
    }
    qsort(took_ns, followed, sizeof *took_ns, compare);
    printf("%8u %8.2f %8.2f %8.2f\n", followed, ms_at(took_ns, followed, 50),
           ms_at(took_ns, followed, 99), ms_at(took_ns, followed, 100));
}

static void judge(unsigned kills)
{
    if (board->overlaps_in_memory != 0 || board->overlaps_in_kernel != 0)
        fail("two were in the critical section at once");
    printf("kills %u; entries %" PRIu64 "; overlaps: %" PRIu64 " in memory, %" PRIu64
           " in the kernel\n",
           kills, board->entries, board->overlaps_in_memory, board->overlaps_in_kernel);
    printf("  died in    deaths   followed   ms until the next got in\n");
    printf("                               median      p99    worst\n");
    for (unsigned row = 0; row < ROWS; row++)
        judge_row(row);
}

static int new_file(const char *called)
{
    int descriptor = memfd_create(called, 0); /* inherited by the workers */
    if (descriptor < 0 || ftruncate(descriptor, sizeof(struct board)) < 0)
        abort();
    return descriptor;
}

static struct board *map_board(int descriptor)
{
    void *memory =
        mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

static pix_segment *create_segment(void)
{
    pix_segment *segment;
    (void)snprintf(name, sizeof name, "/pix-t%d-0", (int)getpid());
    int descriptor = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    sem_t *semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    if (descriptor < 0 || semaphore == SEM_FAILED ||
        pix_open(name, 0, PIX_MADE, &segment) != PIX_OK)
        abort();
    (void)close(descriptor);
    (void)sem_close(semaphore);
    return segment;
}

int main(int count, char **arguments)
{
    if (count > 10 && sscanf(arguments[1], "worker=%d", &board_file) == 1) {
        board = map_board(board_file);
        return work(arguments);
    }
    unsigned kills = count > 1 ? (unsigned)atoi(arguments[1]) : 2000;
    if (kills > LIVES - 2 * WORKERS) {
        fprintf(stderr, "at most %u can be killed\n", LIVES - 2 * WORKERS);
        return 2;
    }
    seed = count > 2 ? strtoull(arguments[2], NULL, 10) | 1 : 1;
    board_file = new_file("board");
    parents_lives = (struct detector){new_file("lives"), new_file("lives")};
    parents_inside = (struct detector){new_file("inside"), new_file("inside")};
    board = map_board(board_file);
    pix_segment *segment = create_segment();
    board->revision = segment->map->revision;
    kills = run(segment, kills);
    if (!board->failed)
        check_the_end(segment);
    judge(kills);
    pix_close(segment);
    (void)shm_unlink(name);
    (void)sem_unlink(name);
    return board->failed != 0;
}
