/* clocks.c: clocks that jump, as for whoever was suspended or stopped for longer than anything is
 * waited for, and clocks that differ, as in time namespaces. Nobody is robbed, no wait is endless,
 * and no sum depends on it.
 *
 * Linked with --wrap for the functions of sys.c that tell the time or sleep until one: what they
 * deal in is the real time and `offset_ns`. And for lock_drop, so that a process can be stopped
 * with the lock in its hands. */
#define _GNU_SOURCE
#include "testing.h"

#include <signal.h>
#include <unistd.h>

#define SECOND (INT64_C(1000000000))
#define HOUR (3600 * SECOND)
#define YEAR (365 * 24 * HOUR)

enum { READY, GO }; /* words in `shared` */

uint64_t __real_sys_clock_ns(void);
uint64_t __real_sys_clock_coarse_ns(void);
void __real_sys_sleep_until(uint64_t deadline_ns);
void __real_sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns);
void __real_lock_drop(struct pix_segment *segment);
uint64_t __wrap_sys_clock_ns(void);
uint64_t __wrap_sys_clock_coarse_ns(void);
void __wrap_sys_sleep_until(uint64_t deadline_ns);
void __wrap_sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns);
void __wrap_lock_drop(struct pix_segment *segment);

static int64_t offset_ns; /* this process's clock against the machine's */
static int64_t jump_ns;   /* how far it goes ahead during each sleep */
static unsigned sleeps;   /* how often it slept */
static void (*before_drop)(void);

uint64_t __wrap_sys_clock_ns(void)
{
    return __real_sys_clock_ns() + (uint64_t)offset_ns;
}

uint64_t __wrap_sys_clock_coarse_ns(void)
{
    return __real_sys_clock_coarse_ns() + (uint64_t)offset_ns;
}

static uint64_t real(uint64_t deadline_ns)
{
    uint64_t until = deadline_ns - (uint64_t)offset_ns;
    offset_ns += jump_ns;
    sleeps++;
    return until;
}

void __wrap_sys_sleep_until(uint64_t deadline_ns)
{
    __real_sys_sleep_until(real(deadline_ns));
}

void __wrap_sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns)
{
    __real_sys_sem_wait_until(semaphore, real(deadline_ns));
}

void __wrap_lock_drop(struct pix_segment *segment)
{
    if (before_drop != NULL)
        before_drop();
    __real_lock_drop(segment);
}

struct holder {
    const char *name;
    int64_t offset_ns;
    void (*inside)(void); /* what it does with the lock in its hands */
};

/* Publishes (1, 1), and then, once told to go on, (2, 2). */
static void hold(const void *argument)
{
    const struct holder *holder = argument;
    offset_ns = holder->offset_ns;
    pix_segment *segment = join_segment(holder->name);
    int slot = claim(segment);
    before_drop = holder->inside;
    CHECK_EQUAL(publish(segment, slot, 1, 1, sys_clock_ns()), PIX_OK);
    before_drop = NULL;
    shared[READY]++;
    wait_until_shared(GO, 1);
    CHECK_EQUAL(publish(segment, slot, 2, 2, sys_clock_ns()), PIX_OK);
}

static pid_t stopped_holder(const char *name, int64_t its_offset_ns)
{
    struct holder holder = {name, its_offset_ns, stop_here};
    pid_t child = start_child(hold, &holder);
    wait_until_stopped(child);
    return child;
}

static void check_not_robbed(pix_segment *segment, int slot)
{
    uint64_t word;
    int ghosts;
    uint64_t lock = segment->map->lock;
    CHECK(lock != 0);
    CHECK_EQUAL(publish(segment, slot, 5, 0, 1), PIX_BUSY);
    CHECK_EQUAL(claim(segment), PIX_BUSY);
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_OK);
    CHECK_EQUAL(ghosts, 0);
    CHECK_EQUAL(slots_alive(segment), 2);
    CHECK_EQUAL(segment->map->lock, lock);
}

static void check_goes_on(pix_segment *segment, int slot, pid_t holder)
{
    CHECK_EQUAL(kill(holder, SIGCONT), 0);
    wait_until_shared(READY, 1);
    CHECK_EQUAL(publish(segment, slot, 5, 0, 1), PIX_OK);
    CHECK_EQUAL(activities_in(summary_of(segment)), 6);
    CHECK_EQUAL(blocks_in(summary_of(segment)), 1);
    shared[GO] = 1;
    expect_success(holder);
    CHECK_EQUAL(activities_in(summary_of(segment)), 7);
    CHECK_EQUAL(blocks_in(summary_of(segment)), 2);
}

/* Field case B04. Stopped, or suspended with its machine, for longer than any timeout there is. */
TEST(a_holder_that_was_stopped_for_years_is_not_robbed)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    pid_t holder = stopped_holder(name, 0);
    static const int64_t later[] = {SECOND, HOUR, YEAR, 100 * YEAR};
    for (unsigned i = 0; i < sizeof later / sizeof *later; i++) {
        offset_ns = later[i];
        check_not_robbed(segment, slot);
    }
    check_goes_on(segment, slot, holder);
    pix_close(segment);
}

static void stop_and_wake_years_later(void)
{
    stop_here();
    offset_ns += YEAR;
}

/* What the holder itself finds when it wakes: the lock is still its own, and its change counts. */
TEST(a_holder_that_wakes_years_later_goes_on_where_it_was)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    struct holder sleeper = {name, 0, stop_and_wake_years_later};
    pid_t holder = start_child(hold, &sleeper);
    wait_until_stopped(holder);
    check_not_robbed(segment, slot);
    check_goes_on(segment, slot, holder);
    pix_close(segment);
}

/* Suspended in the middle of a wait: it is over at once on waking, and never longer than its end.
 */
static void check_wait_over_a_jump(const char *name)
{
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    pid_t holder = stopped_holder(name, 0);
    jump_ns = YEAR;
    sleeps = 0;
    CHECK_EQUAL(publish(segment, slot, 5, 0, 1), PIX_BUSY);
    CHECK_EQUAL(sleeps, 1);
    jump_ns = 0;
    check_goes_on(segment, slot, holder);
    pix_close(segment);
}

TEST(a_wait_that_was_suspended_is_over)
{
    check_wait_over_a_jump(new_name());
}

TEST(a_wait_at_the_semaphore_that_was_suspended_is_over)
{
    const char *name = new_name();
    create_semaphore(name);
    check_wait_over_a_jump(name);
}

/* The lock of whoever was killed meanwhile is taken over, whatever time it is. */
TEST(a_holder_that_was_killed_while_it_was_stopped_is_recovered)
{
    static const int64_t jumps[] = {0, YEAR, -YEAR};
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    for (unsigned i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        pid_t holder = stopped_holder(name, 0);
        kill_child(holder);
        offset_ns = 2 * YEAR + jumps[i];
        CHECK_EQUAL(publish(segment, slot, 5, 0, 1), PIX_OK);
        CHECK_EQUAL(segment->map->lock, 0);
        CHECK_EQUAL(summary_of(segment) & UINT32_MAX, 5);
    }
    pix_close(segment);
}

static void be_an_agent(const void *name)
{
    pix_segment *segment = join_segment(name);
    CHECK_EQUAL(publish(segment, claim(segment), 1, 1, 7), PIX_OK);
    shared[READY]++;
    sleep_for_ever();
}

/* Who died while the machine slept is found at the first change after it; so is who died before a
 * clock went back, as that of a restored process does. */
TEST(the_dead_are_found_whichever_way_the_clock_went)
{
    static const int64_t jumps[] = {2 * SECOND, YEAR, -YEAR};
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    offset_ns = 2 * YEAR;
    int slot = claim(segment);
    for (unsigned i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        pid_t agent = start_child(be_an_agent, name);
        wait_until_shared(READY, i + 1);
        segment->looked_ns = sys_clock_coarse_ns(); /* just now */
        kill_child(agent);
        offset_ns += jumps[i];
        CHECK_EQUAL(publish(segment, slot, 5, 0, 1), PIX_OK);
        CHECK_EQUAL(segment->map->used[0], bit_of((unsigned)slot));
        CHECK_EQUAL(summary_of(segment) & UINT32_MAX, 5);
    }
    pix_close(segment);
}

/* In time namespaces, each has its own monotonic clock. */
TEST(agents_with_other_clocks_are_agents_like_any_other)
{
    static const int64_t offsets[] = {-HOUR, YEAR, 100 * YEAR};
    for (unsigned i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        const char *name = new_name();
        pix_segment *segment = create_segment(name);
        int slot = claim(segment);
        shared[READY] = shared[GO] = 0;
        pid_t holder = stopped_holder(name, offsets[i]);
        check_not_robbed(segment, slot);
        check_goes_on(segment, slot, holder);
        CHECK_EQUAL(slots_alive(segment), 1);
        segment->looked_ns = 0;
        CHECK_EQUAL(publish(segment, slot, 1, 0, sys_clock_ns()), PIX_OK);
        CHECK_EQUAL(summary_of(segment) & UINT32_MAX, 1);
        CHECK_EQUAL(winner_in(summary_of(segment)), slot);
        pix_close(segment);
    }
}
