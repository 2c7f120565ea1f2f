/* world.c: see crash.h. */
#define _GNU_SOURCE
#include "crash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct world world;

const struct holding before[ATTACHED] = {
    {0, 1, 0, 100, "the survivor works"},
    {1, 2, 0, 50, "the bystander works"},
};
const struct holding after[ATTACHED] = {
    {0, 1, 1, 300, "the survivor asks"},
    {1, 2, 1, 310, "the bystander asks"},
};
const struct holding a_newcomers = {-1, 0, 1, 400, "a newcomer asks"};
const struct holding a_ghosts = {-1, 2, 2, 500, "a ghost asks"};

/* ---- who is there ---------------------------------------------------------------------------- */

struct actor arrive(void)
{
    struct actor actor = {.name = world.name, .slot = -1};
    open_as(&actor, PIX_JOIN);
    return actor;
}

struct actor arrive_as(const struct holding *what)
{
    struct actor actor = arrive();
    actor.slot = claim(actor.segment);
    look_later(&actor);
    CHECK_EQUAL(say(&actor, what), PIX_OK);
    return actor;
}

void make_world(void)
{
    world.name = new_name();
    create_semaphore(world.name);
    pix_close(create_segment(world.name));
    world.map = map_file(world.name);
    for (unsigned i = 0; i < ATTACHED; i++) {
        world.attached[i] = arrive_as(&before[i]);
        CHECK_EQUAL(world.attached[i].slot, before[i].slot);
    }
    world.reader.name = world.name;
    open_as(&world.reader, PIX_READ);
    image_take(&world.base, world.map);
    world.original = malloc(PIX_SIZE);
    CHECK(world.original != NULL);
    memcpy((void *)world.original, (const void *)world.map, PIX_SIZE);
}

void end_world(void)
{
    for (unsigned i = 0; i < ATTACHED; i++)
        die(&world.attached[i]);
    die(&world.reader);
    free(world.original);
    CHECK_EQUAL(munmap((void *)world.map, PIX_SIZE), 0);
}

static void set_alive(struct actor *actor, bool alive)
{
    pix_segment *segment = actor->segment;
    unsigned slot = (unsigned)actor->slot;
    if (slot_is_own(segment, slot) == alive)
        return;
    segment->own[slot / 64] ^= bit_of(slot);
    if (alive) {
        CHECK_EQUAL(sys_byte_lock(segment->descriptor, slot), 0);
        CHECK_EQUAL(sys_byte_share(segment->descriptor, slot), 0); /* as an owner holds it */
    } else {
        sys_byte_unlock(segment->descriptor, slot);
    }
}

void restore(const struct image *image, unsigned living)
{
    image_put(image, world.map);
    for (unsigned i = 0; i < ATTACHED; i++) {
        set_alive(&world.attached[i], (living >> i & 1) != 0);
        look_later(&world.attached[i]);
    }
}

void arrange(enum circumstance circumstance)
{
    uint64_t deadline = 1;
    if (circumstance == A_LIVE_HOLDER)
        CHECK_EQUAL(lock_take(world.attached[BYSTANDER].segment, BYSTANDER, &deadline), PIX_OK);
    if (circumstance == NO_NAME)
        CHECK_EQUAL(sys_shm_unlink(world.name), 0);
    if (circumstance != A_GHOST && circumstance != A_DEAD_OWNER && circumstance != ONE_SLOT_FREE)
        return;
    struct actor ghost = arrive_as(&a_ghosts);
    if (circumstance != A_GHOST)
        CHECK_EQUAL(lock_take(ghost.segment, (unsigned)ghost.slot, &deadline), PIX_OK);
    if (circumstance == ONE_SLOT_FREE)
        shared[ONLY_SLOT] = (uint64_t)ghost.slot + 1;
    die(&ghost);
}

void let_go(void)
{
    lock_drop(world.attached[BYSTANDER].segment);
}

/* ---- what must be so ------------------------------------------------------------------------- */

struct living living_in(unsigned living)
{
    struct living found = {0};
    for (unsigned i = 0; i < ATTACHED; i++)
        if ((living >> i & 1) != 0)
            found.holding[found.count++] = before[i];
    return found;
}

static struct holding *holding_of(struct living *living, int slot)
{
    for (unsigned i = 0; i < living->count; i++)
        if (living->holding[i].slot == slot)
            return &living->holding[i];
    CHECK(living->count < ATTACHED + NEAR);
    living->holding[living->count] = (struct holding){slot, 0, 0, 0, ""};
    return &living->holding[living->count++];
}

void holds(struct living *living, int slot, const struct holding *what)
{
    struct holding *holding = holding_of(living, slot);
    *holding = *what;
    holding->slot = slot;
}

void left(struct living *living, int slot)
{
    *holding_of(living, slot) = living->holding[living->count - 1];
    living->count--;
}

static bool ranks_above(const struct holding *one, const struct holding *other)
{
    bool blocks = one->blocks != 0, others = other->blocks != 0;
    if (blocks != others)
        return blocks;
    return one->stamp != other->stamp ? one->stamp > other->stamp : one->slot < other->slot;
}

static struct view sum_of(const struct living *living)
{
    const struct holding *first = NULL;
    struct view sum = {.winner = -1};
    for (unsigned i = 0; i < living->count; i++) {
        const struct holding *holding = &living->holding[i];
        sum.activities += holding->activities;
        sum.blocks += holding->blocks;
        if (holding->activities + holding->blocks != 0 &&
            (first == NULL || ranks_above(holding, first)))
            first = holding;
    }
    if (first != NULL) {
        sum.winner = first->slot;
        sum.length = strlen(first->message);
        memcpy(sum.message, first->message, sum.length);
    }
    return sum;
}

static void check_view(const struct view *view, const struct view *expected)
{
    CHECK_EQUAL(view->activities, expected->activities);
    CHECK_EQUAL(view->blocks, expected->blocks);
    CHECK_EQUAL(view->winner, expected->winner);
    CHECK(same_view(view, expected));
}

static void slots_of(const struct living *living, uint64_t slots[PIX_WORDS])
{
    memset(slots, 0, PIX_WORDS * sizeof *slots);
    for (unsigned i = 0; i < living->count; i++)
        slots[living->holding[i].slot / 64] |= bit_of((unsigned)living->holding[i].slot);
}

void check_look(const struct living *living)
{
    static struct image image;
    struct view expected = sum_of(living);
    uint64_t live[PIX_WORDS], slots[PIX_WORDS], word;
    int ghosts;
    CHECK_EQUAL(pix_look(world.reader.segment, &word, &ghosts), PIX_OK);
    image_take(&image, world.map);
    struct view view = view_of(&image, word, word == world.map->summary);
    check_view(&view, &expected);
    slots_of(living, slots);
    CHECK_EQUAL(pix_live(world.reader.segment, live), PIX_OK);
    CHECK(memcmp(live, slots, sizeof live) == 0);
}

void check_settled(const struct living *living)
{
    static struct image image;
    struct view expected = sum_of(living);
    uint64_t slots[PIX_WORDS];
    image_take(&image, world.map);
    CHECK_EQUAL(world.map->summary >> PIX_RETIRED_BIT, 0);
    struct view view = view_of(&image, world.map->summary, true);
    check_view(&view, &expected);
    CHECK_EQUAL(world.map->activities, expected.activities);
    CHECK_EQUAL(world.map->blocks, expected.blocks);
    slots_of(living, slots);
    for (unsigned i = 0; i < PIX_WORDS; i++) {
        CHECK_EQUAL(world.map->used[i], slots[i]);
        CHECK_EQUAL(world.map->waiting[i], 0);
    }
    check_look(living);
}

void check_progress(uint64_t *revision)
{
    CHECK_EQUAL(world.map->lock, 0);
    uint64_t now = world.map->revision;
    CHECK_EQUAL(now >> PIX_RETIRED_BIT, 0);
    CHECK(now >= *revision);
    *revision = now;
}
