/* damage.c: random bytes in a segment that is in use. Nothing may crash or hang, and every call
 * answers with one of its codes. What was answered may be wrong: whoever can write here can lie. */
#define _GNU_SOURCE
#include "testing.h"

#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS = 300, HEADER_BYTES = PIX_AT_SLOTS };
enum { READY }; /* words in `shared` */

static uint64_t state;

static uint64_t random_below(uint64_t limit)
{
    return random_next(&state) % limit;
}

/* Numbers at which arithmetic and indices go wrong, beside plain noise. */
static uint64_t nasty_word(void)
{
    static const uint64_t nasty[] = {
        0,
        1,
        UINT64_MAX,
        UINT64_MAX >> 1,
        UINT64_C(1) << 63,
        UINT32_MAX,
        0xffff,
        0x7ff,
        PIX_SLOTS,
        PIX_SLOTS + 1,
        UINT64_C(0x7ff) << PIX_SUMMARY_WINNER,
        (uint64_t)(PIX_SLOTS + 1) << PIX_SUMMARY_WINNER,
        UINT64_C(1) << 16 | 1,
        UINT64_C(0xffff) << 48 | 3,
    };
    uint64_t pick = random_below(2 * (sizeof nasty / sizeof *nasty));
    return pick < sizeof nasty / sizeof *nasty ? nasty[pick] : random_next(&state);
}

static void damage_words(struct pix_layout *map, size_t first, size_t end, unsigned count)
{
    volatile uint64_t *words = (volatile uint64_t *)(void *)map;
    for (unsigned i = 0; i < count; i++)
        words[first / 8 + random_below((end - first) / 8)] = nasty_word();
}

/* The fields that decide something, by name; the rest by chance. */
static void damage(struct pix_layout *map)
{
    unsigned slot = (unsigned)random_below(4);
    switch (random_below(12)) {
    case 0:
        map->lock = nasty_word();
        break;
    case 1:
        map->summary = nasty_word();
        break;
    case 2:
        map->revision = nasty_word();
        break;
    case 3:
        map->activities = nasty_word();
        map->blocks = nasty_word();
        break;
    case 4:
        map->used[random_below(PIX_WORDS)] = nasty_word();
        break;
    case 5:
        map->waiting[random_below(PIX_WORDS)] = nasty_word();
        break;
    case 6:
        map->rank[slot] = nasty_word();
        break;
    case 7:
        map->slot[slot].sequence = nasty_word();
        break;
    case 8:
        map->slot[slot].generation = nasty_word();
        break;
    case 9:
        map->slot[slot].session_length = (uint16_t)nasty_word();
        map->slot[slot].pane_length = (uint16_t)nasty_word();
        break;
    case 10:
        damage_words(map, offsetof(struct pix_layout, slot[slot]),
                     offsetof(struct pix_layout, slot[slot + 1]), 20);
        break;
    default:
        damage_words(map, 16, HEADER_BYTES, 40); /* the first 16 bytes say that it is one of ours */
    }
}

static void be_an_agent(const void *name)
{
    pix_segment *segment = join_segment(name);
    CHECK_EQUAL(publish(segment, claim(segment), 1, 1, 7), PIX_OK);
    shared[READY]++;
    sleep_for_ever();
}

static void check_code(int result, int64_t highest)
{
    CHECK(result <= highest);
    CHECK(result == PIX_SYSTEM || result >= 0 || (result <= PIX_ABSENT && result >= PIX_STALE));
}

static void use_everything(pix_segment *segment, const char *name)
{
    uint64_t identity[5] = {random_next(&state)};
    uint64_t live[PIX_WORDS];
    uint64_t word;
    int ghosts;
    pix_segment *another;
    check_code(pix_look(segment, &word, &ghosts), 0);
    check_code(pix_live(segment, live), 0);
    int slot = claim(segment);
    check_code(slot, PIX_AGENTS - 1);
    check_code(publish(segment, 0, 1, 2, 3), 0);
    segment->looked_ns = 0;
    check_code(publish(segment, slot, 3, 0, random_next(&state)), 0);
    check_code(pix_commit(segment, identity, 1, 0, &word), 0);
    check_code(pix_look(segment, &word, &ghosts), 0);
    int result = pix_open(name, 0, (int)random_below(3), &another);
    check_code(result, 0);
    if (result == PIX_OK) {
        check_code(claim(another), PIX_AGENTS - 1);
        pix_close(another);
    }
    pix_release(segment, slot);
}

/* Two agents live and one is dead. */
static void one_round(const char *name)
{
    pix_segment *segment = create_segment(name);
    uint64_t before = shared[READY];
    CHECK_EQUAL(claim(segment), 0);
    pid_t living = start_child(be_an_agent, name);
    wait_until_shared(READY, before + 1);
    pid_t dead = start_child(be_an_agent, name);
    wait_until_shared(READY, before + 2);
    kill_child(dead);
    for (uint64_t i = random_below(3); i > 0; i--)
        damage(segment->map);
    damage(segment->map);
    use_everything(segment, name);
    kill_child(living);
    damage(segment->map);
    use_everything(segment, name);
    pix_close(segment);
    (void)shm_unlink(name);
}

TEST(random_damage_is_survived)
{
    const char *seed = getenv("PIX_SEED");
    const char *name = new_name();
    for (unsigned round = 0; round < effort(ROUNDS); round++) {
        state = (seed != NULL ? strtoull(seed, NULL, 10) : 0) * 1000003 + round + 1;
        for (unsigned i = 0; i < 8; i++)
            (void)random_next(&state);
        one_round(name);
    }
}

/* What the sums say is believed only while it can be so, and made right within one interval. */
TEST(sums_are_made_right)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int first = claim(segment);
    int second = claim(segment);
    CHECK_EQUAL(publish(segment, first, 2, 1, 10), PIX_OK);
    CHECK_EQUAL(publish(segment, second, 3, 0, 20), PIX_OK);
    for (unsigned i = 0; i < 100; i++) {
        state = i + 1;
        segment->map->activities = nasty_word();
        segment->map->blocks = nasty_word();
        segment->map->summary = nasty_word() & ~(UINT64_C(1) << PIX_RETIRED_BIT);
        segment->looked_ns = 0;
        CHECK_EQUAL(publish(segment, second, 4, 0, 30), PIX_OK);
        CHECK_EQUAL(activities_in(summary_of(segment)), 6);
        CHECK_EQUAL(blocks_in(summary_of(segment)), 1);
        CHECK_EQUAL(winner_in(summary_of(segment)), first);
    }
    pix_close(segment);
}

/* An agent that somebody took for dead counts again when it next says what it holds. */
TEST(an_agent_that_was_struck_off_comes_back)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 1, 1, 1), PIX_OK);
    segment->map->used[0] = 0;
    CHECK_EQUAL(slots_alive(segment), 0);
    CHECK_EQUAL(publish(segment, slot, 1, 1, 1), PIX_OK);
    CHECK_EQUAL(slots_alive(segment), 1);
    CHECK_EQUAL(activities_in(summary_of(segment)), 1);
    pix_close(segment);
}

static void fill(sem_t *semaphore, uint64_t counters, uint32_t mark)
{
    char bytes[sizeof *semaphore];
    memset(bytes, 0xa5, sizeof bytes);
    memcpy(bytes, &counters, sizeof counters);
    memcpy(bytes + sizeof counters, &mark, sizeof mark);
    memcpy(semaphore, bytes, sizeof bytes);
}

/* Garbage of the right size in a file that is ours: glibc would end whoever waits or posts there.
 */
TEST(a_semaphore_that_is_damaged_ends_nobody)
{
    static const uint64_t counters[] = {
        0, UINT64_MAX, UINT64_C(1) << 32, UINT64_C(7) << 32 | 0x7fffffff,
        1, UINT32_MAX, 0x80000000,        UINT64_C(0xa5a5) << 48};
    static const uint32_t marks[] = {0, 1, 0x7f, 0x81, UINT32_MAX, 0xa5a5a5a5, 0x80};
    const char *shared_name = new_name();
    create_semaphore(shared_name);
    pix_segment *named = create_segment(shared_name);
    pix_segment *other = join_segment(shared_name);
    int slot = claim(named);
    int others = claim(other);
    CHECK(named->semaphore != NULL && other->semaphore != NULL);
    for (unsigned i = 0; i < sizeof counters / sizeof *counters; i++) {
        uint32_t mark = marks[i % (sizeof marks / sizeof *marks)];
        named->map->lock = named->generation[slot] << 16 | ((uint64_t)slot + 1);
        fill(other->semaphore, counters[i], mark);
        CHECK_EQUAL(publish(other, others, 1, 0, 1), PIX_BUSY); /* has waited there */
        named->map->waiting[0] |= UINT64_C(1) << others;
        CHECK_EQUAL(publish(named, slot, 0, 1, 1), PIX_OK); /* has posted there */
        fill(other->semaphore, counters[i], marks[0]);
        pix_segment *newcomer = join_segment(shared_name);
        CHECK(newcomer->semaphore == NULL); /* refused: it sleeps by the clock */
        pix_close(newcomer);
    }
    pix_close(other);
    pix_close(named);
}
