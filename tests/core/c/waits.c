/* waits.c: how long an operation waits, by a clock of the test's own: exactly, and in no time.
 *
 * Section 4 of the contract: what others do never delays a lease by more than 50 ms. Linked with
 * --wrap for the clock, for both ways to sleep, and for pthread_mutex_clocklock, by which the
 * threads of one process wait for each other. */
#define _GNU_SOURCE
#include "testing.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { READY }; /* a word in `shared` */

#define MS SYS_NS_PER_MS
#define PROMISE (50 * MS)

uint64_t __wrap_sys_clock_ns(void);
void __wrap_sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns);
void __wrap_sys_sleep_until(uint64_t deadline_ns);
int __wrap_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                   const struct timespec *until);

static uint64_t now_ns = UINT64_C(1000000) * MS;
static bool interrupted; /* each sleep, after a millisecond */
static unsigned slept, by_semaphore;
static uint64_t mutex_until_ns; /* how long the mutex was waited for, the last time */
static void (*in_the_mutex)(void);

uint64_t __wrap_sys_clock_ns(void)
{
    return now_ns;
}

/* A waiter looks after each slice whether the holder lives, and asks the clock whether to go on. */
void __wrap_sys_sleep_until(uint64_t deadline_ns)
{
    CHECK(deadline_ns > now_ns && deadline_ns - now_ns <= PIX_SLICE_MS * MS);
    CHECK(slept < 1000); /* it does not give up */
    slept++;
    now_ns = interrupted && deadline_ns > now_ns + MS ? now_ns + MS : deadline_ns;
}

void __wrap_sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns)
{
    CHECK(semaphore != NULL);
    by_semaphore++;
    __wrap_sys_sleep_until(deadline_ns);
}

int __wrap_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                   const struct timespec *until)
{
    CHECK_EQUAL(clock, CLOCK_MONOTONIC);
    mutex_until_ns = (uint64_t)until->tv_sec * 1000 * MS + (uint64_t)until->tv_nsec;
    if (mutex_until_ns <= now_ns || in_the_mutex == NULL)
        return ETIMEDOUT;
    in_the_mutex();
    return pthread_mutex_lock(mutex);
}

/* ---- a live holder ----------------------------------------------------------------------------
 */

static void live_on(const void *name)
{
    pix_segment *segment = join_segment(name);
    CHECK_EQUAL(claim(segment), 1);
    shared[READY] = 1;
    sleep_for_ever();
}

static pid_t holder;

/* A segment whose lock a living process has, with slot 0 claimed by us. */
static pix_segment *with_a_live_holder(const char *name)
{
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    CHECK_EQUAL(publish(segment, 0, 1, 0, 1), PIX_OK);
    holder = start_child(live_on, name);
    wait_until_shared(READY, 1);
    segment->map->lock = segment->map->slot[1].generation << 16 | 2;
    return segment;
}

static void check_waits(pix_segment *segment, uint64_t expected_ns)
{
    static const uint64_t identity[5];
    uint64_t revision, lock = segment->map->lock;
    uint64_t begun = now_ns;
    CHECK_EQUAL(publish(segment, 0, 2, 0, 1), PIX_BUSY);
    CHECK_EQUAL(now_ns - begun, expected_ns);
    begun = now_ns;
    slept = 0;
    CHECK_EQUAL(claim(segment), PIX_BUSY);
    CHECK_EQUAL(now_ns - begun, expected_ns);
    begun = now_ns;
    slept = 0;
    CHECK_EQUAL(pix_commit(segment, identity, 0, 0, &revision), PIX_OK);
    CHECK_EQUAL(now_ns - begun, expected_ns);
    CHECK_EQUAL(segment->map->lock, lock);
}

static void done_with(pix_segment *segment)
{
    kill_child(holder);
    pix_close(segment);
}

TEST(a_live_holder_is_waited_for_until_the_promised_time)
{
    pix_segment *segment = with_a_live_holder(new_name());
    check_waits(segment, PROMISE);
    CHECK_EQUAL(by_semaphore, 0);
    done_with(segment);
}

TEST(a_live_holder_is_waited_for_by_the_semaphore_likewise)
{
    const char *name = new_name();
    create_semaphore(name);
    pix_segment *segment = with_a_live_holder(name);
    check_waits(segment, PROMISE);
    CHECK(by_semaphore > 0);
    done_with(segment);
}

/* B05: the deadline is absolute, and no interruption begins it anew. */
TEST(b05_interruptions_do_not_prolong_the_wait)
{
    pix_segment *segment = with_a_live_holder(new_name());
    interrupted = true;
    check_waits(segment, PROMISE);
    CHECK(slept >= 50);
    done_with(segment);
}

TEST(a_release_waits_for_nobody)
{
    pix_segment *segment = with_a_live_holder(new_name());
    pix_release(segment, 0);
    CHECK_EQUAL(slept, 0);
    CHECK_EQUAL(slots_alive(segment), 1);
    done_with(segment);
}

TEST(a_look_waits_for_nobody)
{
    pix_segment *segment = with_a_live_holder(new_name());
    uint64_t word;
    int ghosts;
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_OK);
    CHECK_EQUAL(slept, 0);
    CHECK_EQUAL(activities_in(word), 1);
    done_with(segment);
}

/* ---- another thread inside --------------------------------------------------------------------
 */

static atomic_bool inside, go_out;

static void *stay_inside(void *unused)
{
    process_lock_always();
    inside = true;
    while (!go_out)
        ;
    process_unlock();
    return unused;
}

static pthread_t start_one_inside(void)
{
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, stay_inside, NULL), 0);
    while (!inside)
        ;
    return thread;
}

static void let_it_go_out(void)
{
    now_ns += 30 * MS;
    go_out = true;
}

/* The wait for another thread of the process and that for another process are one. */
TEST(both_locks_together_are_waited_for_until_the_promised_time)
{
    pix_segment *segment = with_a_live_holder(new_name());
    pthread_t thread = start_one_inside();
    uint64_t begun = now_ns;
    in_the_mutex = let_it_go_out;
    CHECK_EQUAL(publish(segment, 0, 2, 0, 1), PIX_BUSY);
    CHECK_EQUAL(mutex_until_ns, begun + PROMISE);
    CHECK_EQUAL(now_ns - begun, PROMISE);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    done_with(segment);
}

TEST(beside_a_thread_that_stays_inside_a_publish_gives_up_and_a_look_does_not_wait)
{
    pix_segment *segment = with_a_live_holder(new_name());
    pthread_t thread = start_one_inside();
    uint64_t word, begun = now_ns;
    int ghosts;
    CHECK_EQUAL(publish(segment, 0, 2, 0, 1), PIX_BUSY);
    CHECK_EQUAL(mutex_until_ns, begun + PROMISE);
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_BUSY);
    CHECK(mutex_until_ns < begun); /* long past */
    go_out = true;
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    done_with(segment);
}
