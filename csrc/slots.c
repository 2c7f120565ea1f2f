/* slots.c: who has which slot, and who of them lives. */
#include "internal.h"

#include <errno.h>
#include <string.h>

bool slot_is_own(const struct pix_segment *segment, unsigned slot)
{
    return (segment->own[slot / 64] & bit_of(slot)) != 0;
}

/* Dead only if the kernel says so: where it cannot tell, nobody is robbed. */
bool slot_is_dead(struct pix_segment *segment, unsigned slot)
{
    return !slot_is_own(segment, slot) &&
           sys_byte_probe(segment->descriptor, slot) == SYS_BYTE_FREE;
}

static bool is_used(const struct pix_layout *map, unsigned slot)
{
    return (atomic_load_explicit(&map->used[slot / 64], memory_order_acquire) & bit_of(slot)) != 0;
}

/* The byte is ours: begin a generation. The slot is not `own` before we are introduced: until then
 * it holds what its last owner left, which counts no more and which slot_reap is to clear. */
static void begin_generation(struct pix_segment *segment, unsigned slot)
{
    _Atomic uint64_t *generation = &segment->map->slot[slot].generation;
    uint64_t next = atomic_load_explicit(generation, memory_order_relaxed) + 1;
    next &= UINT64_MAX >> 16; /* as many bits as the lock word has for it */
    segment->generation[slot] = next;
    /* release: see owner_is_dead */
    atomic_store_explicit(generation, next, memory_order_release);
}

/* Lock the byte of a slot in [first, end): one that nobody used, else any that is free. Returns the
 * slot, PIX_FULL or PIX_SYSTEM. */
int slot_seize(struct pix_segment *segment, unsigned first, unsigned end)
{
    /* Left for the second pass: whoever is stopped between its byte and its generation would pass
     * for the living owner of the lock, if the slot's last owner died with it. */
    uint64_t word = atomic_load_explicit(&segment->map->lock, memory_order_relaxed);
    unsigned named = (unsigned)(word & 0xffff) - 1;
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned slot = first; slot < end; slot++) {
            if (slot_is_own(segment, slot) ||
                (pass == 0 && (slot == named || is_used(segment->map, slot))))
                continue;
            if (sys_byte_lock(segment->descriptor, slot) == 0) {
                begin_generation(segment, slot);
                return (int)slot;
            }
            if (errno != EAGAIN && errno != EACCES)
                return PIX_SYSTEM;
        }
    }
    return PIX_FULL;
}

void slot_let_go(struct pix_segment *segment, unsigned slot)
{
    /* last: once the byte is free the slot is anybody's */
    segment->own[slot / 64] &= ~bit_of(slot);
    sys_byte_unlock(segment->descriptor, slot);
}

/* Free the slots of the dead. Sums are not touched: the caller recounts. May be interrupted by
 * death after any store: whoever takes the lock next does it all again. */
void slot_reap(struct pix_segment *segment)
{
    struct pix_layout *map = segment->map;
    for (unsigned i = 0; i < PIX_WORDS; i++) {
        uint64_t left = atomic_load_explicit(&map->used[i], memory_order_relaxed) |
                        atomic_load_explicit(&map->waiting[i], memory_order_relaxed);
        for (; left != 0; left &= left - 1) {
            unsigned slot = i * 64 + lowest_bit(left);
            if (slot_is_dead(segment, slot))
                lease_clear(map, slot);
        }
    }
}

struct introduction {
    uint32_t pid;
    const char *session;
    size_t session_length;
    const char *pane;
    size_t pane_length;
};

static size_t at_most(size_t length, size_t limit)
{
    return length < limit ? length : limit;
}

static void introduce(struct pix_segment *segment, unsigned slot, const struct introduction *who)
{
    struct pix_slot *claimed = &segment->map->slot[slot];
    size_t session_length = at_most(who->session_length, PIX_SESSION_BYTES);
    size_t pane_length = at_most(who->pane_length, PIX_PANE_BYTES);
    claimed->pid = who->pid;
    claimed->session_length = (uint16_t)session_length;
    claimed->pane_length = (uint16_t)pane_length;
    memcpy(claimed->session, who->session, session_length);
    memcpy(claimed->pane, who->pane, pane_length);
    segment->own[slot / 64] |= bit_of(slot);
    /* release: a reader that sees the bit sees the slot filled in */
    atomic_fetch_or_explicit(&segment->map->used[slot / 64], bit_of(slot), memory_order_release);
}

static int claim(struct pix_segment *segment, uint64_t known_revision,
                 const struct introduction *who, uint64_t *deadline)
{
    int result = segment_check(segment, true);
    if (result != PIX_OK)
        return result;
    int seized = slot_seize(segment, 0, PIX_AGENTS);
    if (seized < 0)
        return seized;
    unsigned slot = (unsigned)seized;
    result = lock_take(segment, slot, deadline);
    if (result == PIX_OK) {
        /* Agents that died take their leases with them at once for whoever attaches, and what the
         * slot's last owner left must not count as the new one's. */
        lease_clear(segment->map, slot);
        slot_reap(segment);
        result = lease_recount(segment);
        if (result == PIX_OK)
            result = revision_raise(segment->map, known_revision);
        if (result == PIX_OK) {
            lease_blank(segment->map, slot);
            introduce(segment, slot, who);
        }
        lock_drop(segment);
    }
    if (result != PIX_OK) {
        slot_let_go(segment, slot);
        return result;
    }
    return seized;
}

int pix_claim(pix_segment *segment, uint64_t known_revision, uint32_t pid, const char *session,
              size_t session_length, const char *pane, size_t pane_length)
{
    const struct introduction who = {pid, session, session_length, pane, pane_length};
    uint64_t deadline = 0;
    if (process_lock(&deadline) != PIX_OK)
        return PIX_BUSY;
    int result = claim(segment, known_revision, &who, &deadline);
    process_unlock();
    return result;
}

void pix_release(pix_segment *segment, int slot)
{
    uint64_t deadline = 1; /* long past: not to be had at once, the slot is left to the next one */
    process_lock_always();
    /* Stale: the number of our descriptor may be another file's, whose bytes are not ours to free.
     */
    if (segment_look(segment, false) != PIX_STALE && slot >= 0 && slot < PIX_SLOTS &&
        slot_is_own(segment, (unsigned)slot)) {
        if (lock_take(segment, (unsigned)slot, &deadline) == PIX_OK) {
            lease_clear(segment->map, (unsigned)slot);
            (void)lease_recount(segment); /* retired: nobody counts on these words any more */
            lock_drop(segment);
        }
        slot_let_go(segment, (unsigned)slot);
    }
    process_unlock();
}

static void living(struct pix_segment *segment, uint64_t live[PIX_WORDS])
{
    for (unsigned i = 0; i < PIX_WORDS; i++) {
        live[i] = atomic_load_explicit(&segment->map->used[i], memory_order_acquire);
        for (uint64_t left = live[i]; left != 0; left &= left - 1) {
            unsigned slot = i * 64 + lowest_bit(left);
            if (slot_is_dead(segment, slot))
                live[i] &= ~bit_of(slot);
        }
    }
}

int pix_live(pix_segment *segment, uint64_t live[PIX_WORDS])
{
    process_lock_always();
    int result = segment_look(segment, true);
    if (result == PIX_OK)
        living(segment, live);
    process_unlock();
    return result;
}
