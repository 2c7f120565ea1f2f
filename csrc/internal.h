/* internal.h: what the files of the core share with each other and with nobody else. */
#ifndef PIX_INTERNAL_H
#define PIX_INTERNAL_H

#include "pix_shm.h"
#include "sys.h"

#include <stdbool.h>

#define PIX_RETIRED_MASK (UINT64_C(1) << PIX_RETIRED_BIT)
#define PIX_NAME_BYTES 32

/* The process-local half of an open segment; guarded by the process mutex. */
struct pix_segment {
    struct pix_layout *map;
    sem_t *semaphore; /* NULL where none can be trusted: waiters then sleep by the clock */
    int descriptor;   /* -1 once left, and in a forked child */
    char name[PIX_NAME_BYTES];
    uint64_t device;
    uint64_t inode;
    uint64_t looked_ns;             /* when a lease change last looked around */
    uint64_t own[PIX_WORDS];        /* slots of the agents of this handle: its own probe of their
                                       bytes through the same descriptor would see no lock */
    uint64_t generation[PIX_SLOTS]; /* of slots whose byte is ours; not read back from shared
                                       memory */
    struct pix_segment *next;
};

/* fork.c: the process mutex and the list of handles */
int process_lock(uint64_t *deadline_ns); /* PIX_OK, or PIX_BUSY once the deadline has passed */
void process_lock_always(void);
void process_unlock(void);
void process_register(struct pix_segment *segment);
void process_forget(struct pix_segment *segment);

/* lock.c: the lock word. `slot` is one of the caller's own. */
int lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns);
/* Does it name an owner that is dead? Then what it guards may be half done. */
bool lock_is_orphaned(struct pix_segment *segment);
void lock_drop(struct pix_segment *segment);

/* slots.c: who lives. slot_reap wants the lock word. */
bool slot_is_own(const struct pix_segment *segment, unsigned slot);
bool slot_is_dead(struct pix_segment *segment, unsigned slot);
int slot_seize(struct pix_segment *segment, unsigned first, unsigned end);
void slot_let_go(struct pix_segment *segment, unsigned slot);
void slot_reap(struct pix_segment *segment);

/* leases.c: sums. lease_recount, lease_clear and lease_blank want the lock word, the others no
 * lock. */
struct lease_sum {
    uint64_t activities;
    uint64_t blocks;
    uint64_t rank;
    unsigned winner; /* slot + 1, or 0 */
};
struct lease_sum lease_sum(const struct pix_layout *map, const uint64_t slots[PIX_WORDS]);
uint64_t lease_word(const struct lease_sum *sum, uint64_t previous);
int lease_recount(struct pix_segment *segment);
void lease_clear(struct pix_layout *map, unsigned slot);
void lease_blank(struct pix_layout *map, unsigned slot);

/* revision.c: wants no lock */
uint64_t revision_believed(uint64_t known_revision);
int revision_raise(struct pix_layout *map, uint64_t known_revision);

/* segment.c: is this still the segment of its name, and the descriptor still ours? PIX_OK,
 * PIX_RETIRED or PIX_STALE. segment_check also marks a retired one so, which readers leave to
 * others. */
int segment_look(struct pix_segment *segment, bool by_name);
int segment_check(struct pix_segment *segment, bool by_name);
void segment_leave(struct pix_segment *segment);

/* The deadline of an operation that began to wait just now, unless it has one already. */
static inline uint64_t deadline_of(uint64_t *deadline_ns)
{
    if (*deadline_ns == 0)
        *deadline_ns = sys_clock_ns() + PIX_WAIT_MS * SYS_NS_PER_MS;
    return *deadline_ns;
}

static inline uint64_t bit_of(unsigned slot)
{
    return UINT64_C(1) << (slot % 64);
}

/* The lowest bit that is set in a word that is not 0. */
static inline unsigned lowest_bit(uint64_t word)
{
    return (unsigned)__builtin_ctzll(word);
}

#endif
