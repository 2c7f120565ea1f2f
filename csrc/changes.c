/* changes.c: sleeping until something changes, and waking those who do. */
#include "internal.h"

#define SLEEPERS UINT32_C(1)

/* Number and bit are one word, so that the bit a waker takes away is never that of somebody who has
 * already seen the new number and sleeps on it: that one would sleep through all that follows. */
void changes_tell(struct pix_layout *map)
{
    uint32_t seen = atomic_load_explicit(&map->changes, memory_order_relaxed);
    /* release: who reads the new number finds the change that it stands for. */
    while (!atomic_compare_exchange_weak_explicit(&map->changes, &seen, (seen & ~SLEEPERS) + 2,
                                                  memory_order_release, memory_order_relaxed))
        ;
    /* A sleeper that died leaves the bit, and costs one needless call. */
    if ((seen & SLEEPERS) != 0)
        sys_futex_wake_all(&map->changes);
}

void pix_wait(pix_segment *segment, uint32_t changes, uint64_t timeout_ns)
{
    _Atomic uint32_t *word = &segment->map->changes;
    /* relaxed: nothing is read on the strength of it; the kernel compares the word once more */
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    do {
        if (((seen ^ changes) & ~SLEEPERS) != 0)
            return;
    } while (!atomic_compare_exchange_weak_explicit(word, &seen, seen | SLEEPERS,
                                                    memory_order_relaxed, memory_order_relaxed));
    sys_futex_wait(word, seen | SLEEPERS, timeout_ns);
}

void pix_wake(pix_segment *segment)
{
    sys_futex_wake_all(&segment->map->changes);
}
