/* operations.c: see crash.h. Each line of the table at the end is an operation in which a process
 * dies.
 *
 * Linked with --wrap for the clocks and sleeps, so that no run depends on time, and for
 * sys_byte_lock, so that slots can be had or not as a test wants it. */
#include "crash.h"

#include <errno.h>
#include <string.h>

/* ---- the system, under control --------------------------------------------------------------- */

uint64_t clock_ns = UINT64_C(1000000000000);

int __real_sys_byte_lock(int descriptor, int64_t byte);
uint64_t __wrap_sys_clock_ns(void);
uint64_t __wrap_sys_clock_coarse_ns(void);
uint64_t __wrap_sys_wall_ms(void);
void __wrap_sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns);
void __wrap_sys_sleep_until(uint64_t deadline_ns);
int __wrap_sys_byte_lock(int descriptor, int64_t byte);

uint64_t __wrap_sys_clock_ns(void)
{
    return clock_ns;
}

uint64_t __wrap_sys_clock_coarse_ns(void)
{
    return clock_ns;
}

uint64_t __wrap_sys_wall_ms(void)
{
    return UINT64_C(1700000000000);
}

void __wrap_sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns)
{
    (void)semaphore;
    clock_ns = deadline_ns;
}

void __wrap_sys_sleep_until(uint64_t deadline_ns)
{
    clock_ns = deadline_ns;
}

int __wrap_sys_byte_lock(int descriptor, int64_t byte)
{
    if (shared[ONLY_SLOT] != 0 && byte < PIX_AGENTS && (uint64_t)byte + 1 != shared[ONLY_SLOT]) {
        errno = EAGAIN;
        return -1;
    }
    return __real_sys_byte_lock(descriptor, byte);
}

/* ---- what a process does --------------------------------------------------------------------- */

void open_as(struct actor *actor, int role)
{
    CHECK_EQUAL(pix_open(actor->name, 0, role, &actor->segment), PIX_OK);
}

int say(struct actor *actor, const struct holding *what)
{
    return pix_publish(actor->segment, actor->slot, what->activities, what->blocks, what->stamp,
                       1000, "test", 4, what->message, strlen(what->message));
}

void die(struct actor *actor)
{
    if (actor->segment != NULL)
        pix_close(actor->segment); /* writes nothing into the memory */
    actor->segment = NULL;
}

void look_soon(struct actor *actor)
{
    actor->segment->looked_ns = 0;
}

void look_later(struct actor *actor)
{
    actor->segment->looked_ns = clock_ns;
}

static int claim_knowing(struct actor *actor, uint64_t known_revision)
{
    actor->slot = pix_claim(actor->segment, known_revision, 4711, "dying", 5, "pane", 4);
    return actor->slot;
}

static int enter(struct actor *actor)
{
    open_as(actor, PIX_JOIN);
    int slot = claim_knowing(actor, 0);
    look_later(actor);
    return slot;
}

static int only_open(struct actor *actor)
{
    open_as(actor, PIX_JOIN);
    return PIX_OK;
}

static int claim_here(struct actor *actor)
{
    return claim_knowing(actor, 0);
}

static int claim_with_a_higher_revision(struct actor *actor)
{
    return claim_knowing(actor, UINT64_C(1800000000000));
}

#define SAYS(name, ...)                                                                            \
    static int name(struct actor *actor)                                                           \
    {                                                                                              \
        return say(actor, &(const struct holding){0, __VA_ARGS__});                                \
    }

SAYS(nothing, 0, 0, 0, "")
SAYS(work, 1, 0, 200, "the dying one works")
SAYS(work_twice, 2, 0, 210, "the dying one works on something else")
SAYS(work_for_long, 1, 0, 10, "the dying one works, and began long ago")
SAYS(ask, 1, 1, 220, "the dying one asks")
SAYS(ask_twice, 2, 2, 230, "the dying one asks once more")

static int ask_and_look_soon(struct actor *actor)
{
    int result = ask(actor);
    look_soon(actor);
    return result;
}

static int leave(struct actor *actor)
{
    pix_release(actor->segment, actor->slot);
    die(actor);
    return PIX_OK;
}

static int release(struct actor *actor)
{
    pix_release(actor->segment, actor->slot);
    return PIX_OK;
}

static int close_only(struct actor *actor)
{
    die(actor);
    return PIX_OK;
}

static int commit(struct actor *actor, int if_new, unsigned file)
{
    const uint64_t identity[5] = {101 + file, 2, 3, 4, 5};
    uint64_t revision;
    return pix_commit(actor->segment, identity, if_new, 0, &revision);
}

int notice(struct actor *actor, unsigned file)
{
    return commit(actor, 1, file);
}

static int commit_one(struct actor *actor)
{
    return commit(actor, 0, 0);
}

static int notice_one(struct actor *actor)
{
    return notice(actor, 0);
}

static int notice_another(struct actor *actor)
{
    return notice(actor, 1);
}

static int join_and_claim(struct actor *actor)
{
    open_as(actor, PIX_JOIN);
    return claim_here(actor);
}

const struct operation operations[] = {
    {"attach", NOTHING_SPECIAL, NULL, NULL, join_and_claim, PIX_OK},
    {"claim", NOTHING_SPECIAL, only_open, NULL, claim_here, PIX_OK},
    {"claim, knowing a higher revision", NOTHING_SPECIAL, only_open, NULL,
     claim_with_a_higher_revision, PIX_OK},
    {"begin an activity", NOTHING_SPECIAL, enter, NULL, work, PIX_OK},
    {"begin an activity that does not win", NOTHING_SPECIAL, enter, NULL, work_for_long, PIX_OK},
    {"begin a second activity", NOTHING_SPECIAL, enter, work, work_twice, PIX_OK},
    {"end an activity", NOTHING_SPECIAL, enter, work_twice, work, PIX_OK},
    {"end the last activity", NOTHING_SPECIAL, enter, work, nothing, PIX_OK},
    {"begin a block", NOTHING_SPECIAL, enter, work, ask, PIX_OK},
    {"begin a second block", NOTHING_SPECIAL, enter, ask, ask_twice, PIX_OK},
    {"end a block", NOTHING_SPECIAL, enter, ask_twice, ask, PIX_OK},
    {"end the last block", NOTHING_SPECIAL, enter, ask, work, PIX_OK},
    {"say the same again", NOTHING_SPECIAL, enter, ask, ask, PIX_OK},
    {"reset", NOTHING_SPECIAL, enter, ask_twice, nothing, PIX_OK},
    {"detach", NOTHING_SPECIAL, enter, ask, leave, PIX_OK},
    {"close without a release", NOTHING_SPECIAL, enter, ask, close_only, PIX_OK},
    {"commit", NOTHING_SPECIAL, enter, ask, commit_one, PIX_OK},
    {"commit what is new", NOTHING_SPECIAL, enter, commit_one, notice_another, PIX_OK},
    {"commit what is known", NOTHING_SPECIAL, enter, commit_one, notice_one, PIX_OK},
    {"commit as a visitor", NOTHING_SPECIAL, only_open, NULL, commit_one, PIX_OK},
    {"commit what is new, as a visitor", NOTHING_SPECIAL, only_open, NULL, notice_one, PIX_OK},
    {"reap in publishing", A_GHOST, enter, ask_and_look_soon, ask_twice, PIX_OK},
    {"reap in claiming", A_GHOST, only_open, NULL, claim_here, PIX_OK},
    {"steal in publishing", A_DEAD_OWNER, enter, NULL, ask, PIX_OK},
    {"steal in claiming", A_DEAD_OWNER, only_open, NULL, claim_here, PIX_OK},
    {"steal in committing", A_DEAD_OWNER, enter, NULL, commit_one, PIX_OK},
    {"steal in committing as a visitor", A_DEAD_OWNER, only_open, NULL, commit_one, PIX_OK},
    {"steal in detaching", A_DEAD_OWNER, enter, NULL, leave, PIX_OK},
    {"inherit", ONE_SLOT_FREE, only_open, NULL, claim_here, PIX_OK},
    {"wait in publishing", A_LIVE_HOLDER, enter, ask, ask_twice, PIX_BUSY},
    {"wait in claiming", A_LIVE_HOLDER, only_open, NULL, claim_here, PIX_BUSY},
    {"wait in committing", A_LIVE_HOLDER, enter, ask, commit_one, PIX_OK},
    {"wait in committing as a visitor", A_LIVE_HOLDER, only_open, NULL, commit_one, PIX_OK},
    {"give up in detaching", A_LIVE_HOLDER, enter, ask, release, PIX_OK},
    {"retire in publishing", NO_NAME, enter, ask, ask_twice, PIX_RETIRED},
    {"retire in claiming", NO_NAME, only_open, NULL, claim_here, PIX_RETIRED},
    {"retire in committing", NO_NAME, enter, ask, commit_one, PIX_RETIRED},
};
const unsigned operation_count = sizeof operations / sizeof *operations;
