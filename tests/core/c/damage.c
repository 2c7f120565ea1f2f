/* damage.c: random bytes in a segment that is in use, from one bit to all of them. Nothing may
 * crash, hang, or touch what lies beside the segment; every call answers with one of its codes; and
 * what a recovery leaves is the sum of what the slots say. What was answered may be wrong: whoever
 * can write here can lie.
 *
 * Linked with --wrap for sys_map and sys_unmap, which put pages that nobody may touch on both sides
 * of a segment. */
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
#include <sys/wait.h>
#include <unistd.h>

/* How often at each level. Sanitizers are slow, and there is one thread only. */
#if defined(__SANITIZE_THREAD__)
enum { SEEDS = 40 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 400 };
#else
enum { SEEDS = 1000 };
#endif
enum { LEVELS = 20, BESIDE = 4096, HEADER_BYTES = PIX_AT_SLOTS };
enum { READY, SEED, OVER, WORKED }; /* words in `shared` */
enum { DEAD, LIVING };              /* slots of those who are there before the damage */

#define RETIRED (UINT64_C(1) << PIX_RETIRED_BIT)

void *__wrap_sys_map(int descriptor, size_t size);
void __wrap_sys_unmap(void *memory, size_t size);

void *__wrap_sys_map(int descriptor, size_t size)
{
    char *room =
        mmap(NULL, size + (size_t)2 * BESIDE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    void *memory =
        mmap(room + BESIDE, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

void __wrap_sys_unmap(void *memory, size_t size)
{
    CHECK_EQUAL(munmap((char *)memory - BESIDE, size + (size_t)2 * BESIDE), 0);
}

static uint64_t state;

static uint64_t random_below(uint64_t limit)
{
    return random_next(&state) % limit;
}

static void seed_with(uint64_t number)
{
    const char *base = getenv("PIX_SEED");
    state = (base != NULL ? strtoull(base, NULL, 10) : 0) * 1000003 + number + 1;
    for (unsigned i = 0; i < 8; i++)
        (void)random_next(&state);
}

/* ---- what is damaged --------------------------------------------------------------------------
 */

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
        UINT64_C(99) << 16 | (LIVING + 1),
    };
    uint64_t pick = random_below(2 * (sizeof nasty / sizeof *nasty));
    return pick < sizeof nasty / sizeof *nasty ? nasty[pick] : random_next(&state);
}

/* Which word is hit: anything would hardly ever be something that matters. */
static size_t word_to_hit(void)
{
    static const size_t deciding[] = {
        offsetof(struct pix_layout, lock),       offsetof(struct pix_layout, summary),
        offsetof(struct pix_layout, revision),   offsetof(struct pix_layout, activities),
        offsetof(struct pix_layout, blocks),     offsetof(struct pix_layout, waiting),
        offsetof(struct pix_layout, used),       offsetof(struct pix_layout, rank),
        offsetof(struct pix_layout, rank[1]),    offsetof(struct pix_layout, rank[2]),
        offsetof(struct pix_layout, identity),   offsetof(struct pix_layout, used[PIX_WORDS - 1]),
        offsetof(struct pix_layout, slot[0].pid) /* and the lengths of the texts */
    };
    switch (random_below(4)) {
    case 0:
        return deciding[random_below(sizeof deciding / sizeof *deciding)] / 8;
    case 1: /* a slot that is used, or soon will be */
        return (PIX_AT_SLOTS + random_below(4) * PIX_SLOT_BYTES) / 8 +
               random_below(PIX_SLOT_BYTES / 8);
    case 2:
        return random_below(HEADER_BYTES / 8);
    default:
        return random_below(PIX_SIZE / 8);
    }
}

/* Level 0 is one bit; level n is 2^(n - 1) words; the last one is everything. */
static void damage(struct pix_layout *map, unsigned level)
{
    volatile uint64_t *words = (volatile uint64_t *)(void *)map;
    if (level == 0) {
        words[word_to_hit()] ^= UINT64_C(1) << random_below(64);
    } else if (level < LEVELS - 1) {
        for (unsigned i = 0; i < 1U << (level - 1); i++) {
            bool aimed = i < 512; /* by so many, all that matters is hit; chance is quicker */
            words[aimed ? word_to_hit() : random_below(PIX_SIZE / 8)] =
                aimed ? nasty_word() : random_next(&state);
        }
    } else {
        for (unsigned i = 0; i < PIX_SIZE / 8; i++)
            words[i] = random_next(&state);
    }
}

static void damage_semaphore(sem_t *semaphore)
{
    uint64_t words[sizeof *semaphore / 8];
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = nasty_word();
    if (semaphore != NULL)
        memcpy(semaphore, words, sizeof words);
}

/* ---- the scene: who is there before it is damaged ---------------------------------------------
 */

static const char *name;
static char path[64];
static char spare[64]; /* a second name of the file, which survives when it loses the first */
static struct pix_layout *file;
static char image[PIX_SIZE]; /* what is in it, undamaged */

static void be_an_agent(const void *unused)
{
    (void)unused;
    pix_segment *segment = join_segment(name);
    CHECK_EQUAL(publish(segment, claim(segment), 1, 1, 7), PIX_OK);
    shared[READY]++;
    sleep_for_ever();
}

static pid_t start_agent(void)
{
    uint64_t ready = shared[READY];
    pid_t agent = start_child(be_an_agent, NULL);
    wait_until_shared(READY, ready + 1);
    return agent;
}

static void set_scene(void)
{
    name = new_name();
    (void)strcpy(path, segment_path(name));
    (void)strcpy(spare, segment_path(new_name()));
    pix_close(create_segment(name));
    create_semaphore(name);
    CHECK_EQUAL(link(path, spare), 0);
    pid_t dead = start_agent();
    (void)start_agent(); /* ends with us */
    kill_child(dead);
    file = map_file(name);
    memcpy(image, file, sizeof image);
}

/* As it was, the name included. In every second one the dead agent died with the lock. */
static void reset_scene(void)
{
    if (link(spare, path) < 0)
        CHECK_EQUAL(errno, EEXIST);
    memcpy((char *)file, image, sizeof image);
    if (random_below(2) == 0)
        file->lock = file->slot[DEAD].generation << 16 | (DEAD + 1);
}

/* ---- what must still hold ---------------------------------------------------------------------
 */

static void check_code(int result, int64_t highest)
{
    CHECK(result <= highest);
    CHECK(result == PIX_SYSTEM || result >= 0 || (result <= PIX_ABSENT && result >= PIX_STALE));
}

static bool names_the_living(uint64_t word)
{
    return (word & 0xffff) == LIVING + 1 && word >> 16 == file->slot[LIVING].generation;
}

static uint64_t at_most_65535(uint64_t count)
{
    return count < 65535 ? count : 65535;
}

/* Whoever took the lock and looked around made all of it agree again, whatever it found. */
static void check_recovered(pix_segment *segment)
{
    uint64_t activities = 0, blocks = 0, highest = 0;
    int winner = -1;
    CHECK_EQUAL(file->lock, 0);
    for (unsigned slot = 0; slot < PIX_SLOTS; slot++) {
        if ((file->used[slot / 64] >> slot % 64 & 1) == 0)
            continue;
        CHECK(!slot_is_dead(segment, slot));
        struct pix_details details;
        memcpy(&details, (void *)file->slot[slot].details[file->slot[slot].sequence % 2],
               sizeof details);
        activities += details.activities;
        blocks += details.blocks;
        if (file->rank[slot] > highest) {
            highest = file->rank[slot];
            winner = (int)slot;
        }
    }
    CHECK_EQUAL(file->activities, activities);
    CHECK_EQUAL(file->blocks, blocks);
    CHECK_EQUAL(activities_in(file->summary), at_most_65535(activities));
    CHECK_EQUAL(blocks_in(file->summary), at_most_65535(blocks));
    CHECK_EQUAL(winner_in(file->summary), winner);
}

/* An agent that was there before the damage. */
static void go_on(pix_segment *segment, int slot)
{
    uint64_t identity[5] = {random_next(&state)};
    uint64_t live[PIX_WORDS];
    uint64_t word;
    int ghosts;
    bool retired = (file->summary & RETIRED) != 0;
    check_code(pix_look(segment, &word, &ghosts), 0);
    check_code(pix_live(segment, live), 0);
    check_code(publish(segment, slot, 1, 2, 3), 0);
    CHECK_EQUAL(publish(segment, LIVING, 1, 2, 3), PIX_STALE); /* not ours, whatever it says */
    check_code(pix_commit(segment, identity, (int)random_below(2), random_next(&state), &word), 0);
    segment->looked_ns = 0;
    int result = publish(segment, slot, 3, 0, random_next(&state));
    CHECK(!retired || result == PIX_RETIRED || result == PIX_BUSY); /* for good */
    if (result == PIX_OK)
        check_recovered(segment);
    else if (result == PIX_BUSY)
        CHECK(names_the_living(file->lock));
    else
        CHECK_EQUAL(result, PIX_RETIRED);
    if (retired || result == PIX_RETIRED)
        CHECK(((file->summary | file->revision) & RETIRED) != 0);
    check_code(pix_look(segment, &word, &ghosts), 0);
}

/* Where the name was taken off a segment that called itself retired, a new one is as good as any.
 */
static void begin_anew(void)
{
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    CHECK_EQUAL(publish(segment, 0, 1, 0, 1), PIX_OK);
    CHECK_EQUAL(summary_of(segment) & UINT32_MAX, 1);
    CHECK_EQUAL(slots_alive(segment), 1);
    pix_close(segment);
    CHECK_EQUAL(shm_unlink(name), 0);
}

/* One that comes after it: trusts nothing that does not say throughout that it is a segment. */
static void join(void)
{
    pix_segment *segment;
    int role = (int)random_below(3);
    int result = pix_open(name, random_next(&state), role, &segment);
    check_code(result, 0);
    if (result == PIX_OK) {
        CHECK(file->magic == PIX_MAGIC && file->layout == PIX_LAYOUT && file->slots == PIX_SLOTS);
        CHECK_EQUAL((file->summary | file->revision) & RETIRED, 0);
        int slot = claim(segment);
        check_code(slot, PIX_AGENTS - 1);
        if (slot >= 0)
            go_on(segment, slot);
        pix_close(segment);
    } else if (result == PIX_ABSENT && access(path, F_OK) < 0) {
        begin_anew();
    }
}

static void one_round(unsigned level)
{
    reset_scene();
    pix_segment *segment = join_segment(name);
    int slot = claim(segment);
    CHECK(slot > LIVING);
    CHECK_EQUAL(publish(segment, slot, 1, 1, 9), PIX_OK);
    damage(file, level);
    if (random_below(2) == 0) /* the first 16 bytes say that it is one of ours */
        memcpy((char *)file, image, 16);
    if (random_below(4) == 0)
        damage_semaphore(segment->semaphore);
    bool early = random_below(2) == 0;
    if (early)
        join();
    go_on(segment, slot);
    if (!early)
        join();
    pix_release(segment, slot);
    pix_close(segment);
}

static void run_level(const void *level)
{
    (void)alarm(PATIENCE_S);
    set_scene();
    for (unsigned seed = 0; seed < effort(SEEDS); seed++) {
        shared[SEED] = seed;
        seed_with(*(const unsigned *)level * SEEDS + seed);
        one_round(*(const unsigned *)level);
    }
}

/* Each level in a process of its own, so that what kills one is told with its level and seed. */
static void run_levels(unsigned first, unsigned end)
{
    for (unsigned level = first; level < end; level++) {
        int status;
        (void)alarm(PATIENCE_S);
        pid_t child = start_child(run_level, &level);
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        if (status != 0)
            fprintf(stderr, "level %u, seed %llu: wait status %d\n", level,
                    (unsigned long long)shared[SEED], status);
        CHECK_EQUAL(status, 0);
    }
}

TEST(random_damage_from_a_bit_to_eight_words)
{
    run_levels(0, 5);
}

TEST(random_damage_of_up_to_256_words)
{
    run_levels(5, 10);
}

TEST(random_damage_of_up_to_8192_words)
{
    run_levels(10, 15);
}

TEST(random_damage_of_up_to_everything)
{
    run_levels(15, LEVELS);
}

/* ---- the semaphore ----------------------------------------------------------------------------
 */

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

/* ---- damage that does not stop ----------------------------------------------------------------
 */

enum { WORKERS = 2, CHANGES = 10000 };

/* The segment that has the name now: damage makes agents leave one for another. */
static struct pix_layout *map_present(void)
{
    struct stat status;
    int descriptor = shm_open(name, O_RDWR, 0);
    void *memory = MAP_FAILED;
    if (descriptor >= 0 && fstat(descriptor, &status) == 0 && status.st_size >= PIX_SIZE)
        memory = mmap(NULL, PIX_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (descriptor >= 0)
        CHECK_EQUAL(close(descriptor), 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void hit_until_over(const void *unused)
{
    (void)unused;
    seed_with(77);
    while (shared[OVER] == 0) {
        struct pix_layout *map = map_present();
        if (map == NULL)
            continue;
        for (unsigned i = 0; i < 16; i++) {
            damage(map, (unsigned)random_below(6));
            memcpy((char *)map, image, 16);
            if (random_below(8) != 0) { /* else they would do little but move */
                map->summary &= ~RETIRED;
                map->revision &= ~RETIRED;
            }
            (void)usleep(10);
        }
        CHECK_EQUAL(munmap(map, PIX_SIZE), 0);
    }
}

/* Open what has the name, making it where there is nothing, as Python does. NULL: not just now. */
static pix_segment *open_or_make(void)
{
    pix_segment *segment = NULL;
    if (pix_open(name, 0, PIX_JOIN, &segment) == PIX_ABSENT) {
        int descriptor = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (descriptor >= 0)
            CHECK_EQUAL(close(descriptor), 0);
        (void)pix_open(name, 0, PIX_MADE, &segment);
    }
    return segment;
}

/* One lease change, moving to another segment where that is called for. */
static bool change(pix_segment **segment, int *slot, uint32_t blocks)
{
    for (unsigned tries = 0; tries < 3; tries++) {
        if (*segment == NULL) {
            *segment = open_or_make();
            *slot = *segment != NULL ? claim(*segment) : PIX_ABSENT;
        }
        int result = *slot >= 0 ? publish(*segment, *slot, 1, blocks, 5) : *slot;
        check_code(result, 0);
        if (result == PIX_OK)
            return true;
        if (*segment != NULL)
            pix_close(*segment);
        *segment = NULL;
    }
    return false;
}

static void work_amid_damage(const void *unused)
{
    (void)unused;
    pix_segment *segment = NULL;
    int slot = -1;
    for (unsigned i = 0; i < effort(CHANGES); i++) {
        uint64_t live[PIX_WORDS], word;
        int ghosts;
        (void)change(&segment, &slot, i % 2);
        if (segment == NULL)
            continue;
        check_code(pix_look(segment, &word, &ghosts), 0);
        check_code(pix_live(segment, live), 0);
        segment->looked_ns = i % 16 == 0 ? 0 : segment->looked_ns;
    }
    shared[WORKED]++;
    wait_until_shared(OVER, 2);
    while (!change(&segment, &slot, 1)) /* the alarm ends what never comes right */
        ;
    shared[READY]++;
    sleep_for_ever();
}

/* While words change under their feet agents go on; and once the segment is removed they are all
 * well again, in one new one. */
TEST(damage_that_goes_on_is_survived_and_ends_with_the_segment)
{
    pid_t workers[WORKERS];
    name = new_name();
    pix_close(create_segment(name));
    create_semaphore(name);
    file = map_file(name);
    memcpy(image, file, sizeof image);
    pid_t damager = start_child(hit_until_over, NULL);
    for (unsigned i = 0; i < WORKERS; i++)
        workers[i] = start_child(work_amid_damage, NULL);
    wait_until_shared(WORKED, WORKERS);
    shared[OVER] = 1;
    expect_success(damager);
    (void)shm_unlink(name);
    pix_close(create_segment(name));
    shared[OVER] = 2;
    wait_until_shared(READY, WORKERS);
    pix_segment *segment = join_segment(name);
    CHECK_EQUAL(slots_alive(segment), WORKERS);
    CHECK_EQUAL(blocks_in(summary_of(segment)), WORKERS);
    pix_close(segment);
    for (unsigned i = 0; i < WORKERS; i++)
        kill_child(workers[i]);
}

/* ---- damage that is undone --------------------------------------------------------------------
 */

/* What the sums say is believed only while it can be so, and made right within one interval. */
TEST(sums_are_made_right)
{
    pix_segment *segment = create_segment(new_name());
    int first = claim(segment);
    int second = claim(segment);
    CHECK_EQUAL(publish(segment, first, 2, 1, 10), PIX_OK);
    CHECK_EQUAL(publish(segment, second, 3, 0, 20), PIX_OK);
    for (unsigned i = 0; i < 100; i++) {
        state = i + 1;
        segment->map->activities = nasty_word();
        segment->map->blocks = nasty_word();
        segment->map->summary = nasty_word() & ~RETIRED;
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
    pix_segment *segment = create_segment(new_name());
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 1, 1, 1), PIX_OK);
    segment->map->used[0] = 0;
    CHECK_EQUAL(slots_alive(segment), 0);
    CHECK_EQUAL(publish(segment, slot, 1, 1, 1), PIX_OK);
    CHECK_EQUAL(slots_alive(segment), 1);
    CHECK_EQUAL(activities_in(summary_of(segment)), 1);
    pix_close(segment);
}

/* A lock that names somebody who lives and does not hold it delays like a stopped holder's, until
 * that one's next change. */
TEST(a_lock_that_names_the_wrong_agent_is_given_back_by_that_one)
{
    const char *shared_name = new_name();
    pix_segment *named = create_segment(shared_name);
    pix_segment *other = join_segment(shared_name);
    int slot = claim(named);
    int others = claim(other);
    uint64_t word = named->generation[slot] << 16 | ((uint64_t)slot + 1);
    named->map->lock = word;
    CHECK_EQUAL(publish(other, others, 1, 0, 1), PIX_BUSY);
    CHECK_EQUAL(named->map->lock, word);
    CHECK_EQUAL(publish(named, slot, 0, 1, 1), PIX_OK);
    CHECK_EQUAL(publish(other, others, 1, 0, 1), PIX_OK);
    CHECK_EQUAL(summary_of(other) & UINT32_MAX, 1 << PIX_SUMMARY_BLOCKS | 1);
    pix_close(other);
    pix_close(named);
}
