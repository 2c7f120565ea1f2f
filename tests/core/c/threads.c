/* threads.c: four threads of one process open and release leases through one handle, others read
 * without any lock. For the sanitizers, and for what readers may rely on: a word that is whole, and
 * details that are one writer's. */
#define _GNU_SOURCE
#include "testing.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { WRITERS = 4, READERS = 2, ROUNDS = 20000 };

#ifdef __SANITIZE_THREAD__
/* gcc's thread sanitizer knows this function only since version 13. */
int __wrap_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                   const struct timespec *until);
int __wrap_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                   const struct timespec *until)
{
    struct timespec now, wall;
    (void)clock_gettime(clock, &now);
    (void)clock_gettime(CLOCK_REALTIME, &wall);
    int64_t left_ns = (until->tv_sec - now.tv_sec) * INT64_C(1000000000) + until->tv_nsec -
                      now.tv_nsec + wall.tv_nsec;
    if (left_ns < 0)
        left_ns = 0;
    wall.tv_sec += left_ns / INT64_C(1000000000);
    wall.tv_nsec = left_ns % INT64_C(1000000000);
    return pthread_mutex_timedlock(mutex, &wall);
}
#endif

static pix_segment *segment;
static int slots[WRITERS];
static atomic_bool over;

static int publish_one_of_two(int slot, unsigned round)
{
    static const char first[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static const char second[] = "bbbbbbbbbbbbbbbb";
    if (round % 2 == 0)
        return pix_publish(segment, slot, 1, 0, round, 1, "a", 1, first, sizeof first - 1);
    return pix_publish(segment, slot, 0, 2, round, 2, "b", 1, second, sizeof second - 1);
}

static void *write_leases(void *slot)
{
    for (unsigned round = 0; round < effort(ROUNDS); round++) {
        /* BUSY is lawful on a machine so loaded that a thread is not run for 50 ms */
        int result = publish_one_of_two(*(int *)slot, round);
        CHECK(result == PIX_OK || result == PIX_BUSY);
    }
    return NULL;
}

/* Read as readers in other languages do: the sequence, the copy, the sequence again. */
static bool read_details(const struct pix_slot *slot, struct pix_details *details)
{
    uint64_t words[PIX_DETAILS_WORDS];
    uint64_t before = atomic_load_explicit(&slot->sequence, memory_order_acquire);
    for (unsigned i = 0; i < PIX_DETAILS_WORDS; i++)
        words[i] = atomic_load_explicit(&slot->details[before % 2][i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    memcpy(details, words, sizeof *details);
    return atomic_load_explicit(&slot->sequence, memory_order_relaxed) == before;
}

static void check_details(const struct pix_details *details)
{
    if (details->activities == 0 && details->blocks == 0)
        return; /* nothing yet */
    bool first = details->activities == 1;
    CHECK_EQUAL(details->blocks, first ? 0 : 2);
    CHECK_EQUAL(details->since_ms, first ? 1 : 2);
    CHECK_EQUAL(details->message_length, first ? 64 : 16);
    for (unsigned i = 0; i < details->message_length; i++)
        CHECK_EQUAL(details->message[i], first ? 'a' : 'b');
}

static void *read_words(void *unused)
{
    const struct pix_layout *map = pix_memory(segment);
    struct pix_details details;
    uint64_t whole = 0;
    uint64_t tries = 0;
    while (!over) {
        uint64_t word = atomic_load_explicit(&map->summary, memory_order_acquire);
        CHECK(activities_in(word) <= WRITERS && blocks_in(word) <= 2 * WRITERS);
        CHECK(winner_in(word) < WRITERS);
        CHECK(atomic_load_explicit(&map->revision, memory_order_relaxed) != 0);
        int slot = winner_in(word) < 0 ? 0 : winner_in(word);
        if (read_details(&map->slot[slot], &details)) {
            check_details(&details);
            whole++;
        }
        tries++;
    }
    CHECK(whole > 0 || tries == 0);
    return unused;
}

static void *look_around(void *unused)
{
    while (!over) {
        uint64_t live[PIX_WORDS];
        uint64_t word;
        int ghosts = 0;
        int result = pix_look(segment, &word, &ghosts);
        CHECK(result == PIX_OK || result == PIX_BUSY); /* a writer is inside */
        CHECK(ghosts == 0);
        CHECK_EQUAL(pix_live(segment, live), PIX_OK);
        CHECK_EQUAL(live[0], (1 << WRITERS) - 1);
    }
    return unused;
}

static void *commit_revisions(void *unused)
{
    uint64_t last = 0;
    while (!over) {
        const uint64_t identity[5] = {last};
        uint64_t revision;
        int result = pix_commit(segment, identity, 0, 0, &revision);
        CHECK(result == PIX_OK || result == PIX_BUSY);
        CHECK(result != PIX_OK || revision > last);
        last = result == PIX_OK ? revision : last;
    }
    return unused;
}

/* Field case B23. */
TEST(threads_share_a_handle)
{
    pthread_t writers[WRITERS], readers[READERS], looker, committer;
    segment = create_segment(new_name());
    for (unsigned i = 0; i < WRITERS; i++) {
        slots[i] = claim(segment);
        CHECK_EQUAL(slots[i], i);
    }
    for (unsigned i = 0; i < READERS; i++)
        CHECK_EQUAL(pthread_create(&readers[i], NULL, read_words, NULL), 0);
    CHECK_EQUAL(pthread_create(&looker, NULL, look_around, NULL), 0);
    CHECK_EQUAL(pthread_create(&committer, NULL, commit_revisions, NULL), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        CHECK_EQUAL(pthread_create(&writers[i], NULL, write_leases, &slots[i]), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        CHECK_EQUAL(pthread_join(writers[i], NULL), 0);
    over = true;
    for (unsigned i = 0; i < READERS; i++)
        CHECK_EQUAL(pthread_join(readers[i], NULL), 0);
    CHECK_EQUAL(pthread_join(looker, NULL), 0);
    CHECK_EQUAL(pthread_join(committer, NULL), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        pix_release(segment, slots[i]);
    CHECK_EQUAL(summary_of(segment) & UINT32_MAX, 0);
    pix_close(segment);
}

static const char *shared_name;

static void *come_and_go(void *unused)
{
    for (unsigned round = 0; round < effort(ROUNDS / 50); round++) {
        pix_segment *own = join_segment(shared_name);
        int slot = claim(own);
        CHECK(slot >= 0 || slot == PIX_BUSY);
        if (slot >= 0) {
            int result = publish(own, slot, 1, 1, round);
            CHECK(result == PIX_OK || result == PIX_BUSY);
        }
        if (slot >= 0 && round % 2 == 0)
            pix_release(own, slot);
        pix_close(own);
    }
    return unused;
}

TEST(threads_with_handles_of_their_own)
{
    pthread_t threads[WRITERS];
    uint64_t word;
    int ghosts;
    shared_name = new_name();
    segment = create_segment(shared_name);
    for (unsigned i = 0; i < WRITERS; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, come_and_go, NULL), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
    CHECK_EQUAL(slots_alive(segment), 0);
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_OK);
    CHECK_EQUAL(word & UINT32_MAX, 0);
    pix_close(segment);
}

/* ---- many threads ------------------------------------------------------------------------------
 */

enum { THREADS = 32, LEASES = 1000 };

/* An agent for each thread, all in one handle: open and release, a thousand times. */
static void *open_and_release(void *unused)
{
    int slot = claim(segment);
    while (slot == PIX_BUSY)
        slot = claim(segment);
    CHECK(slot >= 0);
    for (unsigned i = 0; i < effort(LEASES); i++) {
        while (publish(segment, slot, 1, i % 2, i) == PIX_BUSY)
            ;
        while (publish(segment, slot, 0, 0, i) == PIX_BUSY)
            ;
    }
    return unused;
}

/* Field case C05. */
TEST(many_threads_lose_no_count_and_no_slot)
{
    pthread_t threads[THREADS];
    uint64_t word;
    int ghosts;
    segment = create_segment(new_name());
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, open_and_release, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
    CHECK_EQUAL(segment->map->activities, 0);
    CHECK_EQUAL(segment->map->blocks, 0);
    CHECK_EQUAL(summary_of(segment) & UINT32_MAX, 0);
    CHECK_EQUAL(segment->map->lock, 0);
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_OK);
    CHECK_EQUAL(ghosts, 0);
    CHECK_EQUAL(slots_alive(segment), THREADS);
    for (int slot = 0; slot < THREADS; slot++) {
        struct pix_details details;
        CHECK(read_details(&segment->map->slot[slot], &details));
        CHECK_EQUAL(details.activities + details.blocks, 0);
        pix_release(segment, slot);
    }
    CHECK_EQUAL(slots_alive(segment), 0);
    for (int slot = 0; slot < PIX_AGENTS; slot++) /* each can be had again */
        CHECK_EQUAL(claim(segment), slot);
    CHECK_EQUAL(claim(segment), PIX_FULL);
    pix_close(segment);
}
