/* steps.c: what others see between any two instructions of an operation. Readers have no lock, and
 * a death may come at each of them: the words are whole, and what they lead to is complete, at
 * every instant and not only at the end.
 *
 * The operation runs in a child, one instruction at a time; after each the parent looks. Linked
 * with --wrap for memset, whose million of bytes are not worth a step each. */
#define _GNU_SOURCE
#include "testing.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Signals by which the child tells its tracer: an operation begins or ends, a stretch that is to
 * run freely begins or ends. */
enum { OPERATION = SIGSTOP, FREELY = SIGUSR1, BY_STEPS = SIGUSR2 };

void *__real_memset(void *memory, int byte, size_t size);
void *__wrap_memset(void *memory, int byte, size_t size);

static bool stepped;

void *__wrap_memset(void *memory, int byte, size_t size)
{
    bool freely = stepped && size == PIX_SIZE;
    if (freely)
        (void)raise(FREELY);
    (void)__real_memset(memory, byte, size);
    if (freely)
        (void)raise(BY_STEPS);
    return memory;
}

struct steps {
    void (*prepare)(void); /* in the child: what comes before the operation */
    void (*operation)(void);
    void (*look)(void); /* in the parent, after each instruction */
};

static void be_stepped(const void *argument)
{
    const struct steps *steps = argument;
    steps->prepare();
    stepped = true;
    (void)raise(OPERATION);
    steps->operation();
    (void)raise(OPERATION);
}

static int next_signal(pid_t child, bool one_instruction)
{
    int status;
    CHECK_EQUAL(ptrace(one_instruction ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, NULL), 0);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFSTOPPED(status)); /* else a check failed there */
    return WSTOPSIG(status);
}

static pid_t start_operation(const struct steps *steps)
{
#ifndef __x86_64__
    skip("a step would break the pairs of instructions that atomics are made of elsewhere");
#endif
    pid_t child = start_traced(be_stepped, steps);
    if (child == 0)
        skip("processes cannot be traced here");
    return child;
}

static void step_through(const struct steps *steps)
{
    pid_t child = start_operation(steps);
    unsigned count = 0;
    int signal_number;
    steps->look();
    while ((signal_number = next_signal(child, true)) != OPERATION) {
        if (signal_number == FREELY)
            CHECK_EQUAL(next_signal(child, false), BY_STEPS);
        else
            CHECK_EQUAL(signal_number, SIGTRAP);
        steps->look();
        count++;
    }
    CHECK(count > 100); /* it was not run through in one go */
    kill_child(child);
}

/* Let the operation run, but for one look after so many of its instructions. */
static void look_once_in(const struct steps *steps, unsigned instructions)
{
    pid_t child = start_operation(steps);
    int signal_number = SIGTRAP;
    while (instructions-- > 0 && signal_number == SIGTRAP)
        signal_number = next_signal(child, true);
    steps->look();
    if (signal_number != OPERATION)
        CHECK_EQUAL(next_signal(child, false), OPERATION);
    kill_child(child);
}

/* ---- leases -----------------------------------------------------------------------------------
 */

static const char *name;
static pix_segment *mine; /* the child's */
static pix_segment *looking;
static int my_slot; /* which slot the child is in */

/* What a state is told by: counts, and a message that consists of one letter. */
struct told {
    unsigned activities, blocks;
    char letter;
    unsigned length;
};

static const struct told working = {1, 0, 'w', 200};
static const struct told blocked = {3, 2, 'b', 17};
static const struct told other = {1, 0, 'o', 30};

static void say(pix_segment *segment, int slot, const struct told *what, uint64_t stamp)
{
    char message[PIX_MESSAGE_BYTES];
    memset(message, what->letter, sizeof message);
    CHECK_EQUAL(pix_publish(segment, slot, what->activities, what->blocks, stamp, what->length,
                            message, 9, message, what->length),
                PIX_OK);
}

/* A new agent that says something. The first time it also looks around, and so counts twice. */
static void join_and_say(const struct told *what, uint64_t stamp)
{
    mine = join_segment(name);
    CHECK_EQUAL(claim(mine), my_slot);
    say(mine, my_slot, what, stamp);
    say(mine, my_slot, what, stamp);
}

static struct pix_details details_of(int slot, unsigned copy)
{
    struct pix_details details;
    const struct pix_slot *from = &looking->map->slot[slot];
    memcpy(&details, (const void *)from->details[(from->sequence + copy) % 2], sizeof details);
    return details;
}

/* As readers take it: with the winner's details that belong to the word. */
static struct told told_now(void)
{
    uint64_t word = summary_of(looking);
    struct told told = {activities_in(word), blocks_in(word), 0, 0};
    if (winner_in(word) < 0)
        return told;
    struct pix_details details = details_of(winner_in(word), 0);
    if (details.epoch == (word >> PIX_SUMMARY_EPOCH) + 1)
        details = details_of(winner_in(word), 1);
    told.letter = details.message[0];
    told.length = details.message_length;
    CHECK_EQUAL(details.since_ms, details.message_length);
    CHECK_EQUAL(details.source_length, 9);
    for (unsigned i = 0; i < details.message_length; i++)
        CHECK(details.message[i] == told.letter && details.source[i % 9] == told.letter);
    return told;
}

static bool is_told(unsigned activities, unsigned blocks, const struct told *by)
{
    struct told told = told_now();
    return told.activities == activities && told.blocks == blocks && told.letter == by->letter &&
           told.length == by->length;
}

/* The lock is free or the child's: taken and named in one. */
static bool lock_is_mine_or(uint64_t another)
{
    uint64_t generation = looking->map->slot[my_slot].generation;
    uint64_t word = looking->map->lock;
    return word == another || word == 0 || word == (generation << 16 | (unsigned)(my_slot + 1));
}

static void work(void)
{
    join_and_say(&working, 1);
}

static void become_blocked(void)
{
    say(mine, my_slot, &blocked, 2);
}

static void look_at_a_publish(void)
{
    struct pix_details details = details_of(my_slot, 0);
    CHECK(is_told(1, 0, &working) || is_told(3, 2, &blocked));
    CHECK(details.activities == (details.blocks == 0 ? 1 : 3));
    CHECK(lock_is_mine_or(0));
}

TEST(a_publish_shows_the_old_state_or_the_new)
{
    name = new_name();
    looking = create_segment(name);
    my_slot = 0;
    step_through(&(struct steps){work, become_blocked, look_at_a_publish});
    CHECK(is_told(3, 2, &blocked));
    pix_close(looking);
}

static void block(void)
{
    join_and_say(&blocked, 2);
}

static void leave(void)
{
    pix_release(mine, my_slot);
}

static void look_at_a_release(void)
{
    CHECK(is_told(4, 2, &blocked) || is_told(1, 0, &other));
    CHECK(lock_is_mine_or(0));
}

TEST(a_release_shows_the_old_state_or_the_new)
{
    name = new_name();
    looking = create_segment(name);
    say(looking, claim(looking), &other, 1);
    my_slot = 1;
    step_through(&(struct steps){block, leave, look_at_a_release});
    CHECK(is_told(1, 0, &other));
    pix_close(looking);
}

static void only_join(void)
{
    mine = join_segment(name);
}

static void move_in(void)
{
    CHECK_EQUAL(pix_claim(mine, 0, 4711, "session", 7, "pane", 4), my_slot);
}

/* Who is shown has said who it is, and holds nothing. */
static void look_at_a_claim(void)
{
    const struct pix_slot *slot = &looking->map->slot[my_slot];
    CHECK(is_told(1, 0, &other));
    CHECK(lock_is_mine_or(0));
    if ((looking->map->used[0] & bit_of((unsigned)my_slot)) == 0)
        return;
    CHECK_EQUAL(slot->pid, 4711);
    CHECK(slot->session_length == 7 && memcmp(slot->session, "session", 7) == 0);
    CHECK(slot->pane_length == 4 && memcmp(slot->pane, "pane", 4) == 0);
    CHECK_EQUAL(details_of(my_slot, 0).activities, 0);
}

TEST(a_claim_shows_nobody_who_is_not_there_yet)
{
    name = new_name();
    looking = create_segment(name);
    say(looking, claim(looking), &other, 1);
    my_slot = 1;
    step_through(&(struct steps){only_join, move_in, look_at_a_claim});
    CHECK_EQUAL(looking->map->used[0], 3);
    pix_close(looking);
}

static uint64_t left_lock; /* the word, as a dead holder left it */

static void work_beside_one_who_dies(void)
{
    join_and_say(&working, 1);
    pix_segment *dying = join_segment(name);
    int slot = claim(dying);
    say(dying, slot, &blocked, 2);
    pix_close(dying);
    mine->map->lock = left_lock;
}

static void take_over(void)
{
    say(mine, my_slot, &other, 3);
}

static void look_at_a_recovery(void)
{
    CHECK(is_told(4, 2, &blocked) || is_told(1, 0, &working) || is_told(1, 0, &other));
    CHECK(lock_is_mine_or(left_lock));
}

TEST(a_recovery_shows_the_dead_until_it_has_counted_anew)
{
    name = new_name();
    looking = create_segment(name);
    my_slot = 0;
    left_lock = UINT64_C(1) << 16 | 2; /* slot 1, claimed for the first time */
    step_through(&(struct steps){work_beside_one_who_dies, take_over, look_at_a_recovery});
    CHECK(is_told(1, 0, &other));
    CHECK_EQUAL(looking->map->lock, 0);
    CHECK_EQUAL(looking->map->used[0], 1);
    pix_close(looking);
}

static void join_and_claim(void)
{
    mine = join_segment(name);
    my_slot = claim(mine);
}

static void take_the_lock(void)
{
    uint64_t deadline = 1; /* long past */
    (void)lock_take(mine, (unsigned)my_slot, &deadline);
}

static uint64_t our_lock;
static bool lock_was_free;

static void take_it_first(void)
{
    uint64_t expected = 0;
    lock_was_free = atomic_compare_exchange_strong(&looking->map->lock, &expected, our_lock);
}

/* At each instruction up to the one at which the other one has it. */
TEST(of_two_who_find_the_lock_free_one_gets_it)
{
    unsigned count = 0;
    name = new_name();
    looking = create_segment(name);
    our_lock = UINT64_C(1) << 16 | (unsigned)(claim(looking) + 1);
    do {
        look_once_in(&(struct steps){join_and_claim, take_the_lock, take_it_first}, count++);
        CHECK(!lock_was_free || looking->map->lock == our_lock);
        looking->map->lock = 0;
    } while (lock_was_free);
    CHECK(count > 10); /* it was not run through in one go */
    pix_close(looking);
}

/* ---- the revision -----------------------------------------------------------------------------
 */

#define LAST (UINT64_C(0x1ffffffffff)) /* of the revisions whose next one differs in every byte */

static void commit(uint64_t file)
{
    const uint64_t identity[5] = {file, file, file, file, file};
    uint64_t revision;
    CHECK_EQUAL(pix_commit(mine, identity, 0, LAST - 1, &revision), PIX_OK);
}

static void make_the_last(void)
{
    mine = join_segment(name);
    CHECK_EQUAL(claim(mine), my_slot);
    commit(1);
}

static void make_the_next(void)
{
    commit(2);
}

/* B21, and: a death before the identity is there makes one revision too many, never one too few. */
static void look_at_a_commit(void)
{
    uint64_t revision = revision_of(looking);
    CHECK(revision == LAST || revision == LAST + 1);
    for (unsigned i = 0; i < 5; i++)
        CHECK(looking->map->identity[i] == 1 || revision == LAST + 1);
    CHECK(lock_is_mine_or(0));
}

TEST(b21_a_revision_is_stored_at_once_and_before_the_identity)
{
    name = new_name();
    looking = create_segment(name);
    my_slot = 0;
    step_through(&(struct steps){make_the_last, make_the_next, look_at_a_commit});
    CHECK_EQUAL(revision_of(looking), LAST + 1);
    CHECK_EQUAL(looking->map->identity[4], 2);
    pix_close(looking);
}

/* ---- making a segment -------------------------------------------------------------------------
 */

static const struct pix_layout *made;

static void nothing(void)
{
}

static void make(void)
{
    CHECK_EQUAL(pix_open(name, 0, PIX_MADE, &mine), PIX_OK);
}

static void look_at_the_making(void)
{
    if (made->layout == 0)
        return;
    CHECK_EQUAL(made->layout, PIX_LAYOUT);
    CHECK_EQUAL(made->magic, PIX_MAGIC);
    CHECK_EQUAL(made->slots, PIX_SLOTS);
    CHECK(made->revision != 0 && made->revision >> PIX_RETIRED_BIT == 0);
    CHECK(made->summary != 0); /* its epoch is not that of the segment before */
    CHECK_EQUAL(made->used[0], 0);
}

TEST(the_layout_number_is_stored_last)
{
    name = new_name();
    create_file(name, PIX_SIZE, 0600); /* to be looked at, but hollow: it is not finished */
    made = map_file(name);
    memset((char *)made, 0xa5, PIX_SIZE); /* left by an initialiser that died */
    ((struct pix_layout *)(uintptr_t)made)->layout = 0;
    step_through(&(struct steps){nothing, make, look_at_the_making});
    CHECK_EQUAL(made->layout, PIX_LAYOUT);
}
