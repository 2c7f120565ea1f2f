/* litmus.c: what only two at once can show. They meet at one place again and again, a little
 * earlier or later each time, so that in some rounds one acts in the very window in which the other
 * must not miss it. On a single processor these tests show nothing.
 *
 * To the lock word two threads with a handle each are two processes. Linked with --wrap for
 * sys_clock_ns, in which whoever waits for the lock stands just before it goes to sleep, and for
 * sys_sem_wait_until and sys_sem_post_if_zero, by which it is seen who sleeps and who is woken. */
#define _GNU_SOURCE
#include "testing.h"

#include <pthread.h>
#include <sched.h>

enum { ROUNDS = 50000 };

uint64_t __real_sys_clock_ns(void);
uint64_t __wrap_sys_clock_ns(void);
void __wrap_sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns);
void __wrap_sys_sem_post_if_zero(sem_t *semaphore);

static _Thread_local uint64_t dice = UINT64_C(88172645463325252);

static void linger(unsigned at_most)
{
    for (volatile uint64_t i = random_next(&dice) % at_most; i > 0; i--)
        ;
}

/* Spinning, so that both go on at the same time; but not for ever beside one that is not run. */
static void wait_for(const _Atomic unsigned *word, unsigned round)
{
    for (unsigned tries = 0; *word < round; tries++)
        if (tries > 50000)
            (void)sched_yield();
}

/* The other thread runs beside this one, on a processor of its own. */
static pthread_t start_beside(void *(*body)(void *))
{
    cpu_set_t all, first;
    pthread_t thread;
    int cpu = 0;
    CHECK_EQUAL(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip("wants two processors");
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    CPU_CLR(cpu, &all);
    CHECK_EQUAL(pthread_create(&thread, NULL, body, NULL), 0);
    CHECK_EQUAL(pthread_setaffinity_np(thread, sizeof first, &first), 0);
    CHECK_EQUAL(sched_setaffinity(0, sizeof all, &all), 0);
    return thread;
}

static pix_segment *handles[2];
static int slots[2];
static _Atomic unsigned begun, done; /* the rounds that were */

/* ---- going to sleep beside one that lets go ---------------------------------------------------
 */

static _Atomic unsigned at_the_door, dropped;
static atomic_bool posted;
static _Thread_local bool going_to_sleep;

uint64_t __wrap_sys_clock_ns(void)
{
    if (going_to_sleep) {
        going_to_sleep = false;
        at_the_door = begun;
        linger(300);
    }
    return __real_sys_clock_ns();
}

void __wrap_sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns)
{
    (void)semaphore;
    (void)deadline_ns;
    wait_for(&dropped, begun);
    CHECK(posted);
}

void __wrap_sys_sem_post_if_zero(sem_t *semaphore)
{
    (void)semaphore;
    posted = true;
}

static void take(unsigned who)
{
    uint64_t deadline = UINT64_MAX;
    CHECK_EQUAL(lock_take(handles[who], (unsigned)slots[who], &deadline), PIX_OK);
}

static void *go_to_sleep(void *unused)
{
    for (unsigned round = 1; round <= effort(ROUNDS); round++) {
        wait_for(&begun, round);
        going_to_sleep = true;
        take(1);
        lock_drop(handles[1]);
        done = round;
    }
    return unused;
}

/* Whoever goes to sleep has said so before it looks at the lock for the last time, and whoever lets
 * go of the lock looks for sleepers afterwards: one of them sees the other. */
TEST(nobody_sleeps_beside_a_free_lock)
{
    const char *name = new_name();
    create_semaphore(name);
    for (unsigned i = 0; i < 2; i++) {
        handles[i] = i == 0 ? create_segment(name) : join_segment(name);
        slots[i] = claim(handles[i]);
    }
    pthread_t sleeper = start_beside(go_to_sleep);
    for (unsigned round = 1; round <= effort(ROUNDS); round++) {
        take(0);
        posted = false;
        begun = round;
        wait_for(&at_the_door, round);
        lock_drop(handles[0]);
        dropped = round;
        wait_for(&done, round);
    }
    CHECK_EQUAL(pthread_join(sleeper, NULL), 0);
    for (unsigned i = 0; i < 2; i++)
        pix_close(handles[i]);
}

/* ---- the mark of a retired segment, set beside one that stores --------------------------------
 */

#define RETIRED (UINT64_C(1) << PIX_RETIRED_BIT)

static _Atomic unsigned calls;
static bool committing;

static int store_once(void)
{
    static const uint64_t identity[5];
    uint64_t revision;
    calls++;
    return committing ? pix_commit(handles[0], identity, 0, 0, &revision)
                      : publish(handles[0], slots[0], 1, 0, 1);
}

static void *store_until_retired(void *unused)
{
    for (unsigned round = 1; round <= effort(ROUNDS); round++) {
        int result;
        wait_for(&begun, round);
        while ((result = store_once()) == PIX_OK)
            ;
        CHECK_EQUAL(result, PIX_RETIRED);
        done = round;
    }
    return unused;
}

static void mark_beside_stores(_Atomic uint64_t *word)
{
    pthread_t storing = start_beside(store_until_retired);
    for (unsigned round = 1; round <= effort(ROUNDS); round++) {
        unsigned before = calls;
        begun = round;
        wait_for(&calls, before + 1);
        linger(2000); /* about as long as a call takes */
        (void)atomic_fetch_or(word, RETIRED);
        before = calls;
        for (unsigned tries = 0; done < round && calls < before + 2; tries++)
            if (tries > 50000)
                (void)sched_yield();
        CHECK((*word & RETIRED) != 0);
        wait_for(&done, round);
        (void)atomic_fetch_and(word, ~RETIRED);
    }
    CHECK_EQUAL(pthread_join(storing, NULL), 0);
    pix_close(handles[0]);
}

static struct pix_layout *open_and_claim(void)
{
    handles[0] = create_segment(new_name());
    slots[0] = claim(handles[0]);
    return handles[0]->map;
}

TEST(a_publish_never_stores_over_the_mark_of_a_retired_segment)
{
    mark_beside_stores(&open_and_claim()->summary);
}

TEST(a_commit_never_stores_over_the_mark_of_a_retired_segment)
{
    committing = true;
    mark_beside_stores(&open_and_claim()->revision);
}
