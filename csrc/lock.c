/* lock.c: the lock word, which names its owner, and the semaphore, where waiters sleep.
 *
 * A semaphore alone stays taken for ever when its holder is killed, and a record of the owner
 * beside it is missing or wrong for an instant at each end. Here one compare-and-swap takes the
 * lock and says who took it, so there is no instant at which a death leaves the lock without a
 * name. */
#include "internal.h"

#define SPINS 64

static inline void pause_a_little(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t name_of(const struct pix_segment *segment, unsigned slot)
{
    return segment->generation[slot] << 16 | (slot + 1);
}

/* May the lock be taken from the one it names? We hold the process mutex: no thread of ours is
 * inside, so our own name is damage. A dead predecessor's, whose slot we are claiming, is of
 * another generation. */
static bool owner_is_dead(struct pix_segment *segment, uint64_t word)
{
    unsigned slot = (unsigned)(word & 0xffff) - 1;
    if (slot >= PIX_SLOTS || slot_is_own(segment, slot))
        return true;
    /* acquire: pairs with the store in slot_seize. The slot has been claimed anew, so whoever held
     * the lock is gone, although the byte is taken again; without this the word would seem to name
     * the living newcomer, and if that one were stopped now nobody could ever take the lock. */
    uint64_t now = atomic_load_explicit(&segment->map->slot[slot].generation, memory_order_acquire);
    return now << 16 != (word & ~UINT64_C(0xffff)) || slot_is_dead(segment, slot);
}

bool lock_is_orphaned(struct pix_segment *segment)
{
    uint64_t word = atomic_load_explicit(&segment->map->lock, memory_order_acquire);
    return word != 0 && owner_is_dead(segment, word);
}

int pix_holder(pix_segment *segment, int *slot, int *dead)
{
    process_lock_always();
    int result = segment_look(segment, true);
    uint64_t word = atomic_load_explicit(&segment->map->lock, memory_order_acquire);
    *slot = (int)(word & 0xffff) - 1;
    *dead = result == PIX_OK && word != 0 && owner_is_dead(segment, word);
    process_unlock();
    return result;
}

static bool swap(struct pix_segment *segment, uint64_t expected, uint64_t desired)
{
    /* acquire: what the last owner wrote before it let go is seen by what we do next. release: who
     * reads our name in owner_is_dead finds the generation in it, too; with an older one we would
     * pass for dead and be robbed. Exact: had the dead owner's lock been inherited or stolen
     * meanwhile, the word would differ, since a name is never used by two holders of the byte. */
    return atomic_compare_exchange_strong_explicit(&segment->map->lock, &expected, desired,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static bool take_now(struct pix_segment *segment, uint64_t mine)
{
    return atomic_load_explicit(&segment->map->lock, memory_order_relaxed) == 0 &&
           swap(segment, 0, mine);
}

static void sleep_a_slice(struct pix_segment *segment, unsigned slot, uint64_t mine,
                          uint64_t deadline, bool *taken)
{
    _Atomic uint64_t *waiting = &segment->map->waiting[slot / 64];
    /* relaxed, then a full fence: the mark must be visible before we look at the word for the last
     * time, as lock_drop clears the word before it looks at the marks. With anything less each
     * could miss the other, and we would sleep the whole slice beside a free lock. */
    atomic_fetch_or_explicit(waiting, bit_of(slot), memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    *taken = take_now(segment, mine);
    if (!*taken) {
        uint64_t until = sys_clock_ns() + PIX_SLICE_MS * SYS_NS_PER_MS;
        if (until > deadline)
            until = deadline;
        if (segment->semaphore != NULL)
            sys_sem_wait_until(segment->semaphore, until);
        else
            sys_sleep_until(until);
    }
    atomic_fetch_and_explicit(waiting, ~bit_of(slot), memory_order_relaxed);
}

/* Take a dead owner's lock, and make right what it may have left half done. */
static bool steal(struct pix_segment *segment, uint64_t word, uint64_t mine)
{
    if (!owner_is_dead(segment, word) || !swap(segment, word, mine))
        return false;
    slot_reap(segment);
    (void)lease_recount(segment); /* retired meanwhile: whoever called us finds that out as well */
    return true;
}

int lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns)
{
    uint64_t mine = name_of(segment, slot);
    for (;;) {
        /* After each slice as well: beside others who take it again and again, a single look finds
         * it taken nearly every time, for all of the time there is. */
        for (unsigned spin = 0; spin < SPINS; spin++) {
            if (take_now(segment, mine))
                return PIX_OK;
            pause_a_little();
        }
        uint64_t deadline = deadline_of(deadline_ns);
        /* acquire: pairs with the release in swap */
        uint64_t word = atomic_load_explicit(&segment->map->lock, memory_order_acquire);
        if (word == 0 ? swap(segment, 0, mine) : steal(segment, word, mine))
            return PIX_OK;
        if (sys_clock_ns() >= deadline)
            return PIX_BUSY;
        bool taken;
        sleep_a_slice(segment, slot, mine, deadline, &taken);
        if (taken)
            return PIX_OK;
    }
}

void lock_drop(struct pix_segment *segment)
{
    struct pix_layout *map = segment->map;
    /* release: everything done inside is visible to whoever takes the lock next. */
    atomic_store_explicit(&map->lock, 0, memory_order_release);
    /* the other half of the bargain in sleep_a_slice */
    atomic_thread_fence(memory_order_seq_cst);
    uint64_t waiting = 0;
    for (unsigned i = 0; i < PIX_WORDS; i++)
        waiting |= atomic_load_explicit(&map->waiting[i], memory_order_relaxed);
    if (waiting != 0 && segment->semaphore != NULL)
        sys_sem_post_if_zero(segment->semaphore);
    /* Here, so that no change can forget it: whoever took the lock took it to change something, or
     * made right on the way what a dead owner had left. */
    changes_tell(map);
}
