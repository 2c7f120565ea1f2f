/* crash.h: every state in which a process can leave the segment by dying, and what follows.
 *
 * What others see of a dead process is the bytes of the segment, which bytes of the file are locked
 * (its own no more), and the names. So a death is not acted out: the memory is copied whenever an
 * operation has changed it, and each distinct copy, with only the living holding their bytes, is
 * where others take over. What they do is watched in the same way, and they die in turn.
 *
 *   image.c       the bytes of a segment: copied, restored, compared; what a reader makes of them
 *   stepping.c    watching an operation change by change
 *   operations.c  the operations in which a process dies
 *   world.c       who lives beside it, and what must be so afterwards
 *   search.c      states and recoveries, until there is no new state
 *   creation.c    the same for the making of a segment
 *   broken.c      a core that is broken on purpose, to see that all this finds it
 */
#ifndef PIX_CRASH_H
#define PIX_CRASH_H

#include "testing.h"

/* ---- image.c --------------------------------------------------------------------------------- */

enum {
    NEAR = 8,     /* slots of agents that can be involved: each takes the lowest that is free */
    VISITORS = 2, /* and of visitors */
    WATCHED = NEAR + VISITORS
};

/* The part of a segment that operations on those slots touch. */
struct image {
    uint64_t header[offsetof(struct pix_layout, rank) / 8];
    uint64_t rank[WATCHED];
    struct pix_slot slot[WATCHED];
};

/* A word of the header, or the first of several, or the one that begins with this field. */
#define HEADER(image, field) ((image)->header[offsetof(struct pix_layout, field) / 8])

void image_take(struct image *image, const struct pix_layout *map);
void image_put(const struct image *image, struct pix_layout *map);
bool image_is(const struct image *image, const struct pix_layout *map);

/* What identifies a state. Two images have the same one if nobody who goes on from them can tell
 * them apart: of what only grows (generations, sequences, epochs, revisions) the relations count.
 */
struct key {
    uint64_t word[2];
};
struct key image_key(const struct image *image);

/* Is everything else as in `original`? */
bool image_rest_is(const struct pix_layout *map, const struct pix_layout *original);

/* Header words that changed and that image_key knows nothing about are noted, and counted here. */
void image_note_unknown(const struct image *before, const struct image *after);
unsigned image_unknown(void);

/* What a reader of a summary word tells. */
struct view {
    unsigned activities, blocks;
    int winner; /* slot, or -1 */
    size_t length;
    char message[PIX_MESSAGE_BYTES];
};
/* As pix_shm/reader.py does it; `unchanged`: the word is that in the segment. */
struct view view_of(const struct image *image, uint64_t word, bool unchanged);
/* The moment that the summary word stands for, if it was stored just now. */
struct view moment_of(const struct image *image);
bool same_view(const struct view *one, const struct view *other);

/* ---- stepping.c ------------------------------------------------------------------------------ */

enum { CHANGES_MAX = 4096 };

extern uint64_t stores; /* that were watched */

/* The images that followed each other; the first is from before. */
struct trace {
    unsigned count;
    struct image image[CHANGES_MAX];
};
extern struct trace *trace;

void trace_begin(const struct pix_layout *map);
void trace_note(void); /* add an image if it differs from the last */

/* From here to stores_unwatch, `note` is called after each store of this process into `memory` (if
 * that is NULL, into each segment that it maps meanwhile), and after it gave a file its size or
 * removed one. */
void stores_watch(void *memory, void (*note)(void));
void stores_unwatch(void);

/* Call `note` after each machine instruction of a traced child, to its next stop_here(). Then the
 * child is killed. Returns how many it were. */
uint64_t step_child(pid_t child, void (*note)(void));

/* ---- operations.c ---------------------------------------------------------------------------- */

/* A process that acts: in this process, but with a handle, and so with locks, of its own. */
struct actor {
    const char *name; /* of the segment */
    pix_segment *segment;
    int slot;
};

/* What an agent holds. */
struct holding {
    int slot;
    uint32_t activities, blocks;
    uint64_t stamp;
    const char *message;
};

/* What is special when the operation begins. */
enum circumstance {
    NOTHING_SPECIAL,
    A_GHOST,       /* a dead agent holds the winning lease */
    A_DEAD_OWNER,  /* and the lock */
    ONE_SLOT_FREE, /* and its slot is the only one that can be claimed */
    A_LIVE_HOLDER, /* the bystander has the lock */
    NO_NAME        /* the segment was removed */
};

struct operation {
    const char *name;
    enum circumstance circumstance;
    int (*enter)(struct actor *actor);   /* how the process came, or NULL */
    int (*prepare)(struct actor *actor); /* and what it did before, or NULL */
    int (*act)(struct actor *actor);
    int result; /* of `act`: this, or for PIX_OK a slot as well */
};
extern const struct operation operations[];
extern const unsigned operation_count;

void open_as(struct actor *actor, int role);
int say(struct actor *actor, const struct holding *what);
/* Commit one of the files that operations commit, if it is new. */
enum { COMMITTED = 2 };
int notice(struct actor *actor, unsigned file);
void die(struct actor *actor); /* its handles are closed, as by the kernel */

/* Look around at the next publish, or a second later. */
void look_soon(struct actor *actor);
void look_later(struct actor *actor);

/* The clock, which moves only by sleeping. No sleep takes time. */
extern uint64_t clock_ns;

/* A word in `shared`: 1 + the only slot of agents whose byte can be had, or 0 for any. */
enum { ONLY_SLOT };

/* ---- world.c --------------------------------------------------------------------------------- */

/* Two agents that were attached before anything happened. */
enum { SURVIVOR, BYSTANDER, ATTACHED, EVERYBODY = (1 << ATTACHED) - 1 };

extern struct world {
    const char *name;
    struct pix_layout *map;      /* not through any handle */
    struct pix_layout *original; /* a copy, from before anything happened */
    struct image base;           /* likewise */
    struct actor attached[ATTACHED];
    struct actor reader;
} world;

extern const struct holding before[ATTACHED]; /* what they hold */
extern const struct holding after[ATTACHED];  /* what they publish in recovery */
extern const struct holding a_newcomers, a_ghosts;

void make_world(void);
void end_world(void);
/* Put an image in place; `living`: a bit for each that is attached. */
void restore(const struct image *image, unsigned living);
struct actor arrive(void); /* a newcomer, without a slot */
/* Come, claim and publish. */
struct actor arrive_as(const struct holding *what);
void arrange(enum circumstance circumstance);
void let_go(void); /* of the lock that was taken for A_LIVE_HOLDER */

/* Who lives and what each holds. */
struct living {
    unsigned count;
    struct holding holding[ATTACHED + NEAR];
};
struct living living_in(unsigned living);
void holds(struct living *living, int slot, const struct holding *what);
void left(struct living *living, int slot);

/* A reader that looks around is told of the living, whatever state a death left. */
void check_look(const struct living *living);
/* Nothing is left of the dead, and everything of the living is there. */
void check_settled(const struct living *living);
/* The lock is free, and the revision, which is noted, has not gone back. */
void check_progress(uint64_t *revision);

/* ---- search.c -------------------------------------------------------------------------------- */

/* Of one operation. */
struct figures {
    uint64_t instructions; /* that it consists of */
    uint64_t images;       /* that it passes through, all of which are gone on from */
    uint64_t states;       /* that they are, told apart by their keys */
    uint64_t recoveries;
    uint64_t stores; /* in them */
    uint64_t found;  /* further states that they pass through */
    unsigned depth;  /* deaths in a row until there was no new state */
};
void print_figures(const char *name, const struct figures *figures);

#endif
