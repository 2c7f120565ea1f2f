/* revision.c: the config revision, and the identity of the file it stands for. */
#include "internal.h"

#include <string.h>

/* Exchanged, not stored, as the mark of a retired segment is set without the lock. */
static int store_revision(struct pix_layout *map, uint64_t now, uint64_t next)
{
    /* release: the file was renamed into place before, and who reads the revision first reads that
     * file or a newer one. */
    if ((now & PIX_RETIRED_MASK) != 0 ||
        !atomic_compare_exchange_strong_explicit(&map->revision, &now, next, memory_order_release,
                                                 memory_order_relaxed))
        return PIX_RETIRED;
    return PIX_OK;
}

int revision_raise(struct pix_layout *map, uint64_t known_revision)
{
    uint64_t now = atomic_load_explicit(&map->revision, memory_order_relaxed);
    return now >= known_revision ? PIX_OK : store_revision(map, now, known_revision + 1);
}

static int commit(struct pix_layout *map, const uint64_t identity[5], bool if_new,
                  uint64_t known_revision, uint64_t *revision)
{
    uint64_t now = atomic_load_explicit(&map->revision, memory_order_relaxed);
    uint64_t next = (now > known_revision ? now : known_revision) + 1;
    if (if_new && memcmp(map->identity, identity, sizeof map->identity) == 0)
        next = now;
    int result = store_revision(map, now, next);
    if (result != PIX_OK)
        return result;
    /* The identity comes last: a death before it makes one revision too many, never one too few. */
    memcpy(map->identity, identity, sizeof map->identity);
    *revision = next;
    return PIX_OK;
}

static int own_agent_slot(const struct pix_segment *segment)
{
    for (unsigned i = 0; i < PIX_WORDS; i++)
        if (segment->own[i] != 0)
            return (int)(i * 64 + lowest_bit(segment->own[i]));
    return -1;
}

int pix_commit(pix_segment *segment, const uint64_t identity[5], int if_new,
               uint64_t known_revision, uint64_t *revision)
{
    uint64_t deadline = 0;
    if (process_lock(&deadline) != PIX_OK)
        return PIX_BUSY;
    int result = segment_check(segment, false);
    if (result == PIX_OK) {
        int slot = own_agent_slot(segment);
        bool visitor = slot < 0;
        if (visitor)
            slot = slot_seize(segment, PIX_AGENTS, PIX_SLOTS);
        result = slot < 0 ? slot : lock_take(segment, (unsigned)slot, &deadline);
        if (result == PIX_OK) {
            result = commit(segment->map, identity, if_new != 0, known_revision, revision);
            lock_drop(segment);
        }
        if (visitor && slot >= 0)
            slot_let_go(segment, (unsigned)slot);
    }
    process_unlock();
    return result;
}
