/* broken.c: rules of the core broken on purpose, each by a definition on the compiler's command
 * line. Such a run must fail: it shows that the search finds what is wrong. */
#include "crash.h"

#if defined(BREAK_NO_RECOUNT) || defined(BREAK_NO_REAP) || defined(BREAK_HEIR)
int __real_lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns);
int __wrap_lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns);

static bool taking;

int __wrap_lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns)
{
#ifdef BREAK_HEIR /* what is in the slot is its new owner's before the lock is */
    segment->own[slot / 64] |= bit_of(slot);
#endif
    taking = true;
    int result = __real_lock_take(segment, slot, deadline_ns);
    taking = false;
    return result;
}
#endif

#ifdef BREAK_NO_RECOUNT /* who takes a dead owner's lock believes its sums */
int __real_lease_recount(struct pix_segment *segment);
int __wrap_lease_recount(struct pix_segment *segment);

int __wrap_lease_recount(struct pix_segment *segment)
{
    return taking ? PIX_OK : __real_lease_recount(segment);
}
#endif

#ifdef BREAK_NO_REAP /* who takes a dead owner's lock leaves the dead where they are */
void __real_slot_reap(struct pix_segment *segment);
void __wrap_slot_reap(struct pix_segment *segment);

void __wrap_slot_reap(struct pix_segment *segment)
{
    if (!taking)
        __real_slot_reap(segment);
}
#endif

#ifdef BREAK_EARLY_DROP /* a release lets the lock go before the sum is stored */
int __real_lease_recount(struct pix_segment *segment);
void __real_pix_release(pix_segment *segment, int slot);
int __wrap_lease_recount(struct pix_segment *segment);
void __wrap_pix_release(pix_segment *segment, int slot);

static bool releasing;

int __wrap_lease_recount(struct pix_segment *segment)
{
    if (releasing)
        segment->map->lock = 0;
    return __real_lease_recount(segment);
}

void __wrap_pix_release(pix_segment *segment, int slot)
{
    releasing = true;
    __real_pix_release(segment, slot);
    releasing = false;
}
#endif

#if defined(BREAK_DETAILS) || defined(BREAK_WAITING)
void __real_lease_clear(struct pix_layout *map, unsigned slot);
void __wrap_lease_clear(struct pix_layout *map, unsigned slot);

void __wrap_lease_clear(struct pix_layout *map, unsigned slot)
{
#ifdef BREAK_DETAILS /* freeing a slot overwrites details that a word may stand for */
    __real_lease_clear(map, slot);
    lease_blank(map, slot);
#else /* a dead waiter's mark stays */
    uint64_t waiting = map->waiting[slot / 64];
    __real_lease_clear(map, slot);
    map->waiting[slot / 64] = waiting;
#endif
}
#endif

#ifdef BREAK_NEVER_DEAD /* the dead pass for living */
bool __wrap_slot_is_dead(struct pix_segment *segment, unsigned slot);

bool __wrap_slot_is_dead(struct pix_segment *segment, unsigned slot)
{
    (void)segment;
    (void)slot;
    return false;
}
#endif

#ifdef BREAK_REVISION /* the revision goes back for an instant */
int __real_revision_raise(struct pix_layout *map, uint64_t known_revision);
int __wrap_revision_raise(struct pix_layout *map, uint64_t known_revision);

int __wrap_revision_raise(struct pix_layout *map, uint64_t known_revision)
{
    map->revision--;
    map->revision++;
    return __real_revision_raise(map, known_revision);
}
#endif
