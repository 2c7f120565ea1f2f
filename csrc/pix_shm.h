/* pix_shm.h: the shared-memory core of pix_shm, and the manual of it.
 *
 * One segment holds what the agents of one agent directory and one user tell each other: who is
 * there, who waits for the user, and the revision of the shared config. It is a cache: leases live
 * in the memory of their process, settings in their file, and a segment may be removed at any time.
 *
 * The promise everything here serves: a process may die at any instruction, and the others carry
 * on.
 *
 * THE LOCKS, AND THEIR ORDER
 *
 * The process mutex (fork.c). One in each process. Guards the process-local half (handles, which
 * slots are ours) and keeps the threads of one process out of each other's way. The fork handlers
 * hold it, so that no thread is inside the core when a child is made.
 *
 * The slot byte (slots.c). Byte N of the segment's file, locked with F_OFD_SETLK: the witness that
 * the owner of slot N lives. Only ever tried, never waited for. Exclusive until the slot has its
 * new generation, shared from then on: so a newcomer is never taken for the owner before it. The
 * kernel frees it at death: zombies, reused pids and other pid namespaces cannot deceive it.
 *
 * The start byte (segment.c). Byte PIX_START_BYTE, locked likewise by whoever initialises a segment
 * or takes the name off a retired one. Never held together with another byte or with the lock word.
 *
 * The lock word (lock.c). One in each segment. Guards everything in it that is not a single word.
 * Names its owner, so that taking it and saying who took it are one step.
 *
 * They are taken in the order mutex, byte, word, and let go in the reverse order. Nobody waits for
 * the word longer than PIX_WAIT_MS, nor holds the mutex longer than that, so a stopped process
 * delays others by that much and no more; pix_publish, pix_claim and pix_commit count the wait for
 * both as one. The named semaphore is no lock: it is where those who wait for the word sleep, and a
 * lost or stray post costs at most one slice of sleep (PIX_SLICE_MS).
 *
 * SLEEPING UNTIL SOMETHING CHANGES
 *
 * `changes` is a futex word: it grows after every change of summary or revision, when the lock is
 * free again, and its lowest bit says that somebody sleeps there. Those who wait for a change read
 * it first, then what they wait for, then sleep in pix_wait() unless it has grown. Sleeping is the
 * only thing for which a reader writes to the segment, and the bit the only thing it writes. A
 * writer that dies between a change and the word leaves the sleepers asleep until somebody else
 * changes something: so nobody sleeps for longer than PIX_LOOK_MS without looking.
 *
 * WHAT READERS MAY RELY ON
 *
 * Readers take no lock, own no slot and write nothing. `summary` and `revision` are single aligned
 * words, always whole. A slot's details have two copies: the one that `sequence` names is complete,
 * and is not touched before the sequence has moved on.
 *
 * ERRORS
 *
 * Every function that can fail returns one of the negative PIX_ codes; PIX_SYSTEM leaves errno
 * set. No function prints, exits, raises signals or keeps a pointer it was given.
 */
#ifndef PIX_SHM_H
#define PIX_SHM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* cdef: begin */
/* Sizes and limits. The layout number is in the segment and, hashed, in its name. */
enum {
    PIX_LAYOUT = 2,
    PIX_SIZE = 1048576,    /* bytes of a segment */
    PIX_AGENTS = 1000,     /* slots for agents: 0 ... PIX_AGENTS - 1 */
    PIX_SLOTS = 1024,      /* all slots; the rest is for visitors, who publish no state */
    PIX_START_BYTE = 1024, /* the byte that an initialiser locks */
    PIX_WAIT_MS = 50,      /* longest wait for a live holder */
    PIX_SLICE_MS = 4,      /* a waiter looks whether the holder lives after each slice */
    PIX_LOOK_MS = 1000, /* how often a lease change looks for dead slots and a replaced segment */
    PIX_SESSION_BYTES = 64, /* UTF-8, not terminated */
    PIX_PANE_BYTES = 32,
    PIX_SOURCE_BYTES = 64,
    PIX_MESSAGE_BYTES = 256,
    PIX_COUNT_MAX = 65535 /* counts in the summary stop here */
};

/* What functions return when they fail. */
enum {
    PIX_OK = 0,
    PIX_SYSTEM = -1,    /* a system call failed; errno says why */
    PIX_ABSENT = -2,    /* no segment has that name */
    PIX_FOREIGN = -3,   /* not a regular file, another owner, or a mode that is not 0600 */
    PIX_MALFORMED = -4, /* ours, but of a wrong size, magic or layout: never trusted */
    PIX_STARTING = -5,  /* another process is initialising it right now; try again */
    PIX_BUSY = -6,      /* its lock is held by a live process for longer than PIX_WAIT_MS */
    PIX_FULL = -7,      /* every slot belongs to a live process */
    PIX_RETIRED = -8,   /* removed or replaced: open the segment that has the name now */
    PIX_STALE = -9 /* the handle was left, is the parent's, or its descriptor was closed: reopen */
};

/* Where readers find things: offsets from the segment's start, from a slot's start, from the start
 * of one copy of the details. Pinned to the structures below by assertions. */
enum {
    PIX_AT_SUMMARY = 128,
    PIX_AT_REVISION = 136,
    PIX_AT_CHANGES = 144,
    PIX_AT_USED = 384,
    PIX_AT_SLOTS = 12288,
    PIX_SLOT_BYTES = 832,
    PIX_SLOT_GENERATION = 0,
    PIX_SLOT_SEQUENCE = 8,
    PIX_SLOT_PID = 16,
    PIX_SLOT_SESSION_LENGTH = 20,
    PIX_SLOT_PANE_LENGTH = 22,
    PIX_SLOT_SESSION = 24,
    PIX_SLOT_PANE = 88,
    PIX_SLOT_DETAILS = 128,
    PIX_DETAILS_BYTES = 344,
    PIX_DETAILS_SINCE = 0,
    PIX_DETAILS_ACTIVITIES = 8,
    PIX_DETAILS_BLOCKS = 12,
    PIX_DETAILS_SOURCE_LENGTH = 16,
    PIX_DETAILS_MESSAGE_LENGTH = 18,
    PIX_DETAILS_EPOCH = 20,
    PIX_DETAILS_SOURCE = 24,
    PIX_DETAILS_MESSAGE = 88
};

/* The summary word, from its lowest bit: activities (16), blocks (16), winner (11: slot + 1, or 0),
 * epoch (20: grows with every change, so that a change of the message alone is seen too), retired
 * (1, the highest). State is blocked if blocks > 0, else working if activities > 0, else idle. The
 * revision word has the same highest bit. A retired word stays retired: read the new segment.
 *
 * A change fills in the details before it stores the word, so a reader of the word may already find
 * the winner's details of a later one. If the word is still the same after they were copied, only
 * those of the epoch after the word's are too new, and the slot's other copy is the right one; if
 * it changed, any details that are not newer are right. Both only if the slot's sequence and
 * generation are still the same.
 *
 * An epoch comes round after 1,048,576 changes; a reader that sleeps through exactly as many and
 * finds equal counts and the same winner may keep an old message until the next change. */
enum {
    PIX_SUMMARY_BLOCKS = 16,
    PIX_SUMMARY_WINNER = 32,
    PIX_SUMMARY_EPOCH = 43,
    PIX_RETIRED_BIT = 63
};

/* One open segment in one process. The process-local half: never in shared memory. */
typedef struct pix_segment pix_segment;

/* Who opens: a process that joins, one that has just made the file, one that only reads. */
enum { PIX_JOIN = 0, PIX_MADE = 1, PIX_READ = 2 };

/* Open the segment `name` ("/..." of at most 30 bytes), never following a link, and verify it.
 * A segment that its creator left empty or unfinished is initialised by exactly one opener, with a
 * revision of the wall clock in milliseconds or known_revision + 1, whichever is more; one that has
 * the name but is retired loses the name. Readers do neither: to them both are ABSENT. A file that
 * PIX_MADE cannot initialise is removed again. *opened is set on PIX_OK only, and is given back
 * with pix_close(). Fails with SYSTEM, ABSENT, FOREIGN, MALFORMED, STARTING. Waits for nothing but
 * the mutex. */
int pix_open(const char *name, uint64_t known_revision, int role, pix_segment **opened);

/* Look for the semaphore of the segment's name, unless the handle has it (pix_open looks once).
 * Returns 1 if there is one that can be trusted: a private file of ours, of the right size; else 0,
 * and waiters sleep by the clock. */
int pix_semaphore(pix_segment *segment);

/* Give up the descriptor, and with it every slot of this handle: others see their owner gone. Then
 * unmap and free: no view of the memory may be in use any more. */
void pix_close(pix_segment *segment);

/* The first of the PIX_SIZE bytes of the mapping, for reading. */
const void *pix_memory(pix_segment *segment);

/* Claim a slot for an agent; dead agents' slots are freed and the summary made right on the way,
 * and the revision is raised above known_revision where it is not (a segment made anew while the
 * clock was set back). Texts are UTF-8, cut at the sizes above. Returns the slot, 0 ... PIX_AGENTS
 * - 1, or SYSTEM, BUSY, FULL, RETIRED, STALE. */
int pix_claim(pix_segment *segment, uint64_t known_revision, uint32_t pid, const char *session,
              size_t session_length, const char *pane, size_t pane_length);

/* Free a slot of this handle. If the lock cannot be had at once, the slot is left as a dead process
 * leaves one, and the next process that looks frees it. */
void pix_release(pix_segment *segment, int slot);

/* Say what the agent in `slot` holds now: the counts of its open leases, and text, source and stamp
 * of the lease that decides its state. `stamp` orders leases across processes (monotonic clock, ns,
 * when the lease was opened); `since_ms` is the wall clock at the last change of state. Absolute,
 * so that saying it again is harmless. Fails with BUSY, RETIRED, STALE. */
int pix_publish(pix_segment *segment, int slot, uint32_t activities, uint32_t blocks,
                uint64_t stamp, uint64_t since_ms, const char *source, size_t source_length,
                const char *message, size_t message_length);

/* Record the identity of the config file (device, inode, size, mtime and ctime in ns; zeros where
 * there is no file) and make a new revision; with `if_new`, only where the segment does not know
 * that identity. The new revision is above known_revision. *revision gets the revision now. A
 * process without an agent claims a visitor's slot meanwhile. Where the lock cannot be had, the
 * revision is made without it and the identity not recorded: whoever sees the file then makes one
 * more. Fails with RETIRED, STALE. */
int pix_commit(pix_segment *segment, const uint64_t identity[5], int if_new,
               uint64_t known_revision, uint64_t *revision);

/* Look around, without the lock and without writing: is this segment still the one of its name, and
 * is each agent that counts still alive? *summary gets the word to believe: the shared one, or
 * where dead agents are in it the sum of the living. *ghosts tells which. Never waits: BUSY if
 * another thread is inside the core. Fails with BUSY, RETIRED, STALE. */
int pix_look(pix_segment *segment, uint64_t *summary, int *ghosts);

/* Which agents live now, by the kernel's word: bit N % 64 of live[N / 64] for slot N. Fails with
 * RETIRED, STALE. */
int pix_live(pix_segment *segment, uint64_t live[16]);

/* Who holds the lock word: *slot gets the slot, -1 where it is free; *dead, whether that is
 * somebody who died, so that whoever wants the lock next takes it. For people to look at: it may be
 * over by now. Fails with RETIRED, STALE. */
int pix_holder(pix_segment *segment, int *slot, int *dead);

/* Sleep until `changes` is not what the caller read any more, a signal comes, or timeout_ns have
 * passed. May return early, and says nothing: compare and call again. Takes no lock, the mutex
 * neither. */
void pix_wait(pix_segment *segment, uint32_t changes, uint64_t timeout_ns);

/* Make all who sleep in pix_wait look, though nothing has changed. One that is about to sleep may
 * miss it. */
void pix_wake(pix_segment *segment);
/* cdef: end */

/* ------------------------------------------------------------------------------------------------
 * The layout. Every field is read by processes of unknown intent or health: no index or length from
 * here is used unchecked. Fields that readers see without the lock are atomic; the rest is guarded
 * by the lock word.
 */
#define PIX_MAGIC UINT64_C(0x6d68735f786970ff)
#define PIX_WORDS (PIX_SLOTS / 64)

struct pix_details {
    uint64_t since_ms;
    uint32_t activities;
    uint32_t blocks;
    uint16_t source_length;
    uint16_t message_length;
    uint32_t epoch;
    char source[PIX_SOURCE_BYTES];
    char message[PIX_MESSAGE_BYTES];
};

#define PIX_DETAILS_WORDS (PIX_DETAILS_BYTES / 8)

struct pix_slot {
    _Atomic uint64_t
        generation;            /* grows with each claim; the holder of the slot's byte writes it */
    _Atomic uint64_t sequence; /* details[sequence % 2] is the complete copy */
    uint32_t pid;              /* to show to people, never to decide by */
    uint16_t session_length;
    uint16_t pane_length;
    char session[PIX_SESSION_BYTES];
    char pane[PIX_PANE_BYTES];
    uint64_t reserved;
    /* two struct pix_details, word by word: readers may look while the idle copy is filled */
    _Atomic uint64_t details[2][PIX_DETAILS_WORDS];
    uint64_t padding[2];
};

struct pix_layout {
    uint64_t magic;
    _Atomic uint32_t layout; /* stored last: 0 while the segment is being made */
    uint32_t slots;
    uint64_t padding_a[6];

    _Atomic uint64_t lock; /* 0, or generation << 16 | slot + 1 of the owner */
    uint64_t padding_b[7];

    _Atomic uint64_t summary;
    _Atomic uint64_t revision;
    _Atomic uint32_t changes; /* of either, times 2; bit 0: somebody sleeps here */
    uint32_t padding_c[11];

    uint64_t activities; /* sums over the used slots, not cut at PIX_COUNT_MAX */
    uint64_t blocks;
    _Atomic uint64_t identity[5]; /* of the config file at the last revision */
    uint64_t padding_d;

    _Atomic uint64_t waiting[PIX_WORDS]; /* a bit for each slot whose owner sleeps for the lock */
    _Atomic uint64_t used[PIX_WORDS];    /* a bit for each slot that counts */
    uint64_t padding_e[448];

    /* 0 while idle, else the stamp of the lease that decides, above bit 63 for a block: the highest
     * rank wins the summary */
    _Atomic uint64_t rank[PIX_SLOTS];

    struct pix_slot slot[PIX_SLOTS];
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "words are lock-free");
_Static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(_Atomic uint32_t) == 4, "atomics are plain");
_Static_assert(sizeof(struct pix_details) == PIX_DETAILS_BYTES, "layout");
_Static_assert(offsetof(struct pix_details, since_ms) == PIX_DETAILS_SINCE, "layout");
_Static_assert(offsetof(struct pix_details, activities) == PIX_DETAILS_ACTIVITIES, "layout");
_Static_assert(offsetof(struct pix_details, blocks) == PIX_DETAILS_BLOCKS, "layout");
_Static_assert(offsetof(struct pix_details, source_length) == PIX_DETAILS_SOURCE_LENGTH, "layout");
_Static_assert(offsetof(struct pix_details, message_length) == PIX_DETAILS_MESSAGE_LENGTH,
               "layout");
_Static_assert(offsetof(struct pix_details, epoch) == PIX_DETAILS_EPOCH, "layout");
_Static_assert(offsetof(struct pix_details, source) == PIX_DETAILS_SOURCE, "layout");
_Static_assert(offsetof(struct pix_details, message) == PIX_DETAILS_MESSAGE, "layout");
_Static_assert(sizeof(struct pix_slot) == PIX_SLOT_BYTES, "layout");
_Static_assert(offsetof(struct pix_slot, generation) == PIX_SLOT_GENERATION, "layout");
_Static_assert(offsetof(struct pix_slot, sequence) == PIX_SLOT_SEQUENCE, "layout");
_Static_assert(offsetof(struct pix_slot, pid) == PIX_SLOT_PID, "layout");
_Static_assert(offsetof(struct pix_slot, session_length) == PIX_SLOT_SESSION_LENGTH, "layout");
_Static_assert(offsetof(struct pix_slot, pane_length) == PIX_SLOT_PANE_LENGTH, "layout");
_Static_assert(offsetof(struct pix_slot, session) == PIX_SLOT_SESSION, "layout");
_Static_assert(offsetof(struct pix_slot, pane) == PIX_SLOT_PANE, "layout");
_Static_assert(offsetof(struct pix_slot, details) == PIX_SLOT_DETAILS, "layout");
_Static_assert(offsetof(struct pix_layout, lock) == 64, "layout");
_Static_assert(offsetof(struct pix_layout, summary) == PIX_AT_SUMMARY, "layout");
_Static_assert(offsetof(struct pix_layout, revision) == PIX_AT_REVISION, "layout");
_Static_assert(offsetof(struct pix_layout, changes) == PIX_AT_CHANGES, "layout");
_Static_assert(offsetof(struct pix_layout, used) == PIX_AT_USED, "layout");
_Static_assert(offsetof(struct pix_layout, rank) == 4096, "layout");
_Static_assert(offsetof(struct pix_layout, slot) == PIX_AT_SLOTS, "layout");
_Static_assert(sizeof(struct pix_layout) <= PIX_SIZE, "layout");
_Static_assert(PIX_SLOTS % 64 == 0 && PIX_WORDS == 16, "bitmaps are whole words");
_Static_assert(PIX_SLOTS < 2048 - 1, "a slot fits the winner's bits");
_Static_assert(PIX_START_BYTE >= PIX_SLOTS, "the start byte is no slot's byte");

#endif
