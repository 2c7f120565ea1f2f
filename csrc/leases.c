/* leases.c: what agents hold, one by one and summed up.
 *
 * The summary is the sum of the slots that count. A lease change keeps it by difference; whoever
 * doubts (a dead holder of the lock, a freed slot, a sum that cannot be) counts anew from the
 * slots, which are never repaired by guess: each is written by its owner alone, and freed when its
 * owner is dead. */
#include "internal.h"

#include <string.h>

#define BLOCK_RANK (UINT64_C(1) << 63)
#define EPOCH_MASK ((UINT64_C(1) << (PIX_RETIRED_BIT - PIX_SUMMARY_EPOCH)) - 1)

/* Details in private memory, by field and word by word as shared memory has them. */
union details {
    struct pix_details field;
    uint64_t word[PIX_DETAILS_WORDS];
};

/* The complete copy of a slot's details, read without the lock. False: it changed twice meanwhile.
 */
static bool read_details(const struct pix_slot *slot, union details *details, unsigned count)
{
    /* acquire: the words below are at least as new as the sequence that names them */
    uint64_t before = atomic_load_explicit(&slot->sequence, memory_order_acquire);
    const _Atomic uint64_t *copy = slot->details[before % 2];
    for (unsigned i = 0; i < count; i++)
        details->word[i] = atomic_load_explicit(&copy[i], memory_order_relaxed);
    /* pairs with the release fence in write_details: had we seen a word of the change after the
     * next, we would now see the sequence moved on */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&slot->sequence, memory_order_relaxed) == before;
}

/* Fill the idle copy, then flip: death in between leaves the old details complete. The caller holds
 * the lock word. */
static void write_details(struct pix_slot *slot, const union details *details, unsigned count)
{
    uint64_t sequence = atomic_load_explicit(&slot->sequence, memory_order_relaxed) + 1;
    _Atomic uint64_t *copy = slot->details[sequence % 2];
    /* The last flip must be visible before the first word of the copy that it retired changes, or a
     * reader could take a mixture for whole. */
    atomic_thread_fence(memory_order_release);
    for (unsigned i = 0; i < count; i++)
        atomic_store_explicit(&copy[i], details->word[i], memory_order_relaxed);
    /* release: whoever reads the new sequence reads the new words */
    atomic_store_explicit(&slot->sequence, sequence, memory_order_release);
}

#define COUNT_WORDS 2 /* since and both counts come first */

/* Counts of a slot. Its owner may be changing them if we do not hold the lock: then try again, and
 * in the end take what was read. Both counts are in one word, so they at least belong together. */
static void counts_of(const struct pix_slot *slot, uint32_t *activities, uint32_t *blocks)
{
    union details details;
    for (int tries = 0; tries < 16 && !read_details(slot, &details, COUNT_WORDS); tries++)
        ;
    *activities = details.field.activities;
    *blocks = details.field.blocks;
}

static void add_winner(struct lease_sum *sum, const struct pix_layout *map, unsigned slot)
{
    uint64_t rank = atomic_load_explicit(&map->rank[slot], memory_order_relaxed);
    if (rank > sum->rank) {
        sum->rank = rank;
        sum->winner = slot + 1;
    }
}

struct lease_sum lease_sum(const struct pix_layout *map, const uint64_t slots[PIX_WORDS])
{
    struct lease_sum sum = {0};
    for (unsigned i = 0; i < PIX_WORDS; i++) {
        for (uint64_t left = slots[i]; left != 0; left &= left - 1) {
            unsigned slot = i * 64 + lowest_bit(left);
            uint32_t activities, blocks;
            counts_of(&map->slot[slot], &activities, &blocks);
            sum.activities += activities;
            sum.blocks += blocks;
            add_winner(&sum, map, slot);
        }
    }
    return sum;
}

static uint64_t cut(uint64_t count)
{
    return count < PIX_COUNT_MAX ? count : PIX_COUNT_MAX;
}

static uint64_t epoch_after(uint64_t word)
{
    return ((word >> PIX_SUMMARY_EPOCH) + 1) & EPOCH_MASK;
}

uint64_t lease_word(const struct lease_sum *sum, uint64_t previous)
{
    return cut(sum->activities) | cut(sum->blocks) << PIX_SUMMARY_BLOCKS |
           (uint64_t)sum->winner << PIX_SUMMARY_WINNER | epoch_after(previous) << PIX_SUMMARY_EPOCH;
}

/* Make a sum the segment's. PIX_RETIRED: this segment is nobody's any more. */
static int store_sum(struct pix_layout *map, const struct lease_sum *sum)
{
    map->activities = sum->activities;
    map->blocks = sum->blocks;
    uint64_t previous = atomic_load_explicit(&map->summary, memory_order_relaxed);
    /* Exchanged, not stored: the mark of a retired segment is set without the lock, and must never
     * be stored over. release: who reads the word finds the winner's details at least as new. */
    if ((previous & PIX_RETIRED_MASK) != 0 ||
        !atomic_compare_exchange_strong_explicit(&map->summary, &previous,
                                                 lease_word(sum, previous), memory_order_release,
                                                 memory_order_relaxed))
        return PIX_RETIRED;
    return PIX_OK;
}

static void used_slots(const struct pix_layout *map, uint64_t used[PIX_WORDS])
{
    for (unsigned i = 0; i < PIX_WORDS; i++)
        used[i] = atomic_load_explicit(&map->used[i], memory_order_relaxed);
}

int lease_recount(struct pix_segment *segment)
{
    uint64_t used[PIX_WORDS];
    used_slots(segment->map, used);
    struct lease_sum sum = lease_sum(segment->map, used);
    return store_sum(segment->map, &sum);
}

/* A slot that counts no more; the caller recounts. Its details stay: until that recount is stored
 * the summary may still name the slot, and of its owner's last two copies one is the right one.
 * Were they overwritten here after a death between details and word, neither would be, and a reader
 * would pair the word with a message that never belonged to it. */
void lease_clear(struct pix_layout *map, unsigned slot)
{
    atomic_fetch_and_explicit(&map->used[slot / 64], ~bit_of(slot), memory_order_relaxed);
    atomic_fetch_and_explicit(&map->waiting[slot / 64], ~bit_of(slot), memory_order_relaxed);
    atomic_store_explicit(&map->rank[slot], 0, memory_order_relaxed);
}

/* Details of nobody, from which a slot's next owner starts; after the recount that left out the
 * last one. At the epoch of the next word: a reader of an older one must not take them for its own.
 */
void lease_blank(struct pix_layout *map, unsigned slot)
{
    uint64_t word = atomic_load_explicit(&map->summary, memory_order_relaxed);
    const union details nothing = {.field = {.epoch = (uint32_t)epoch_after(word)}};
    write_details(&map->slot[slot], &nothing, PIX_DETAILS_WORDS);
}

/* The sum after one slot went from (activities, blocks) to `new`; false if the sums in the segment
 * cannot be right. */
static bool sum_by_difference(const struct pix_layout *map, unsigned slot, uint32_t activities,
                              uint32_t blocks, const struct pix_details *new, struct lease_sum *sum)
{
    if (map->activities < activities || map->blocks < blocks)
        return false;
    sum->activities = map->activities - activities + new->activities;
    sum->blocks = map->blocks - blocks + new->blocks;
    uint64_t word = atomic_load_explicit(&map->summary, memory_order_relaxed);
    unsigned winner = (unsigned)(word >> PIX_SUMMARY_WINNER) & 0x7ff;
    if (winner > PIX_SLOTS)
        return false;
    if (winner != 0 && winner != slot + 1)
        add_winner(sum, map, winner - 1);
    if (winner == slot + 1) { /* it may have come down: look who is first now */
        uint64_t used[PIX_WORDS];
        used_slots(map, used);
        for (unsigned i = 0; i < PIX_WORDS; i++)
            for (uint64_t left = used[i]; left != 0; left &= left - 1)
                add_winner(sum, map, i * 64 + lowest_bit(left));
    } else {
        add_winner(sum, map, slot);
    }
    return true;
}

static int publish(struct pix_segment *segment, unsigned slot, uint64_t rank, union details *new,
                   unsigned count)
{
    struct pix_layout *map = segment->map;
    new->field.epoch =
        (uint32_t)epoch_after(atomic_load_explicit(&map->summary, memory_order_relaxed));
    uint64_t seen = atomic_load_explicit(&map->used[slot / 64], memory_order_relaxed);
    uint32_t activities, blocks;
    counts_of(&map->slot[slot], &activities, &blocks);

    write_details(&map->slot[slot], new, count);
    atomic_store_explicit(&map->rank[slot], rank, memory_order_relaxed);
    struct lease_sum sum = {0};
    if ((seen & bit_of(slot)) != 0 &&
        sum_by_difference(map, slot, activities, blocks, &new->field, &sum))
        return store_sum(map, &sum);
    /* Somebody damaged the segment, or found us dead by an error of the kernel: count anew, with
     * us. */
    atomic_fetch_or_explicit(&map->used[slot / 64], bit_of(slot), memory_order_release);
    return lease_recount(segment);
}

/* Once a second: is the name still ours, and has anybody died? */
static int look_around(struct pix_segment *segment, uint64_t now)
{
    segment->looked_ns = now;
    int result = segment_check(segment, true);
    if (result != PIX_OK)
        return result;
    slot_reap(segment);
    return lease_recount(segment);
}

static int change(struct pix_segment *segment, int slot, uint64_t rank, union details *new,
                  unsigned count, uint64_t *deadline)
{
    if (slot < 0 || slot >= PIX_AGENTS || !slot_is_own(segment, (unsigned)slot))
        return PIX_STALE;
    int result = segment_check(segment, false);
    if (result != PIX_OK)
        return result;
    result = lock_take(segment, (unsigned)slot, deadline);
    if (result != PIX_OK)
        return result;
    result = publish(segment, (unsigned)slot, rank, new, count);
    uint64_t now = sys_clock_coarse_ns();
    if (result == PIX_OK && now - segment->looked_ns >= PIX_LOOK_MS * SYS_NS_PER_MS)
        result = look_around(segment, now);
    lock_drop(segment);
    return result;
}

int pix_publish(pix_segment *segment, int slot, uint32_t activities, uint32_t blocks,
                uint64_t stamp, uint64_t since_ms, const char *source, size_t source_length,
                const char *message, size_t message_length)
{
    union details new = {
        .field = {.since_ms = since_ms, .activities = activities, .blocks = blocks}};
    if (source_length > PIX_SOURCE_BYTES)
        source_length = PIX_SOURCE_BYTES;
    if (message_length > PIX_MESSAGE_BYTES)
        message_length = PIX_MESSAGE_BYTES;
    new.field.source_length = (uint16_t)source_length;
    new.field.message_length = (uint16_t)message_length;
    memcpy(new.field.source, source, source_length);
    memcpy(new.field.message, message, message_length);
    unsigned count = (unsigned)((PIX_DETAILS_MESSAGE + message_length + 7) / 8);

    uint64_t rank = 0;
    if (activities != 0 || blocks != 0)
        rank = (stamp == 0 ? 1 : stamp & ~BLOCK_RANK) | (blocks != 0 ? BLOCK_RANK : 0);

    uint64_t deadline = 0;
    if (process_lock(&deadline) != PIX_OK)
        return PIX_BUSY;
    int result = change(segment, slot, rank, &new, count, &deadline);
    process_unlock();
    return result;
}

/* Is anybody dead who is not idle? */
static bool is_haunted(struct pix_segment *segment, const uint64_t slots[PIX_WORDS])
{
    for (unsigned i = 0; i < PIX_WORDS; i++) {
        for (uint64_t left = slots[i]; left != 0; left &= left - 1) {
            unsigned slot = i * 64 + lowest_bit(left);
            if (atomic_load_explicit(&segment->map->rank[slot], memory_order_relaxed) != 0 &&
                slot_is_dead(segment, slot))
                return true;
        }
    }
    return false;
}

static void leave_out_the_dead(struct pix_segment *segment, uint64_t slots[PIX_WORDS])
{
    for (unsigned i = 0; i < PIX_WORDS; i++) {
        for (uint64_t left = slots[i]; left != 0; left &= left - 1) {
            unsigned slot = i * 64 + lowest_bit(left);
            if (slot_is_dead(segment, slot))
                slots[i] &= ~bit_of(slot);
        }
    }
}

static int look(struct pix_segment *segment, uint64_t *summary, int *ghosts)
{
    const struct pix_layout *map = segment->map;
    uint64_t used[PIX_WORDS];
    int result = segment_look(segment, true);
    if (result != PIX_OK)
        return result;
    /* acquire: pairs with store_sum; the slots counted below are at least as new */
    uint64_t word = atomic_load_explicit(&map->summary, memory_order_acquire);
    *summary = word;
    *ghosts = 0;
    if ((word & PIX_RETIRED_MASK) != 0)
        return PIX_RETIRED;
    used_slots(map, used);
    /* A holder of the lock that died may have freed slots and not yet summed up. */
    if (lock_is_orphaned(segment) || ((word & UINT32_MAX) != 0 && is_haunted(segment, used))) {
        leave_out_the_dead(segment, used);
        struct lease_sum sum = lease_sum(map, used);
        *summary = lease_word(&sum, word);
        *ghosts = 1;
    }
    return PIX_OK;
}

int pix_look(pix_segment *segment, uint64_t *summary, int *ghosts)
{
    uint64_t deadline = 1; /* long past: do not wait for a thread of ours that is inside */
    if (process_lock(&deadline) != PIX_OK)
        return PIX_BUSY;
    int result = look(segment, summary, ghosts);
    process_unlock();
    return result;
}
