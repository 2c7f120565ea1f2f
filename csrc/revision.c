/* revision.c: the config revision, and the identity of the file it stands for. */
#include "internal.h"

/* What a caller says it knows may come from a damaged segment: no revision is so high that the next
 * one would be the mark of a retired segment. */
uint64_t revision_believed(uint64_t known_revision)
{
    return known_revision < PIX_RETIRED_MASK - 1 ? known_revision : 0;
}

/* Make the revision the one after both `known_revision` and the revision now, if `make`; *revision
 * gets the revision now. Needs no lock: it is one word, and whoever loses the race looks again. */
static int advance(struct pix_layout *map, bool make, uint64_t known_revision, uint64_t *revision)
{
    uint64_t now = atomic_load_explicit(&map->revision, memory_order_relaxed);
    uint64_t next;
    known_revision = revision_believed(known_revision);
    do {
        if ((now & PIX_RETIRED_MASK) != 0)
            return PIX_RETIRED; /* set without the lock, and never to be stored over */
        next = make ? (now > known_revision ? now : known_revision) + 1 : now;
        /* release: the file was renamed into place before, and who reads the revision first reads
         * that file or a newer one. */
    } while (!atomic_compare_exchange_weak_explicit(&map->revision, &now, next,
                                                    memory_order_release, memory_order_relaxed));
    *revision = next;
    return PIX_OK;
}

int revision_raise(struct pix_layout *map, uint64_t known_revision)
{
    uint64_t revision = atomic_load_explicit(&map->revision, memory_order_relaxed);
    return advance(map, revision < revision_believed(known_revision), known_revision, &revision);
}

#define IDENTITY_WORDS 5

/* Exact under the lock word; without it another commit may be half seen, and an identity that is
 * known taken for a new one, which is harmless. */
static bool is_known(const struct pix_layout *map, const uint64_t identity[IDENTITY_WORDS])
{
    for (unsigned i = 0; i < IDENTITY_WORDS; i++)
        if (atomic_load_explicit(&map->identity[i], memory_order_relaxed) != identity[i])
            return false;
    return true;
}

/* The caller holds the lock word. */
static int commit(struct pix_layout *map, const uint64_t identity[IDENTITY_WORDS], bool if_new,
                  uint64_t known_revision, uint64_t *revision)
{
    bool make = !if_new || !is_known(map, identity);
    int result = advance(map, make, known_revision, revision);
    /* The identity comes last: a death before it makes one revision too many, never one too few. */
    for (unsigned i = 0; result == PIX_OK && i < IDENTITY_WORDS; i++)
        atomic_store_explicit(&map->identity[i], identity[i], memory_order_relaxed);
    return result;
}

static int own_agent_slot(const struct pix_segment *segment)
{
    for (unsigned i = 0; i < PIX_WORDS; i++)
        if (segment->own[i] != 0)
            return (int)(i * 64 + lowest_bit(segment->own[i]));
    return -1;
}

static int commit_under_lock(struct pix_segment *segment, const uint64_t identity[IDENTITY_WORDS],
                             bool if_new, uint64_t known_revision, uint64_t *revision,
                             uint64_t *deadline)
{
    int slot = own_agent_slot(segment);
    bool visitor = slot < 0;
    if (visitor)
        slot = slot_seize(segment, PIX_AGENTS, PIX_SLOTS);
    if (slot < 0)
        return slot;
    int result = lock_take(segment, (unsigned)slot, deadline);
    if (result == PIX_OK) {
        result = commit(segment->map, identity, if_new, known_revision, revision);
        lock_drop(segment);
    }
    if (visitor)
        slot_let_go(segment, (unsigned)slot);
    return result;
}

int pix_commit(pix_segment *segment, const uint64_t identity[IDENTITY_WORDS], int if_new,
               uint64_t known_revision, uint64_t *revision)
{
    uint64_t deadline = 0;
    int result = PIX_BUSY;
    if (process_lock(&deadline) == PIX_OK) {
        result = segment_check(segment, false);
        if (result == PIX_OK)
            result = commit_under_lock(segment, identity, if_new != 0, known_revision, revision,
                                       &deadline);
        process_unlock();
    }
    /* A stopped process must not keep others from hearing of a change: rather one revision too
     * many. */
    if (result == PIX_BUSY || result == PIX_FULL || result == PIX_SYSTEM) {
        result = advance(segment->map, !if_new || !is_known(segment->map, identity), known_revision,
                         revision);
        changes_tell(segment->map);
    }
    return result;
}
