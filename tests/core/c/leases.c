/* leases.c: slots, what agents publish in them, the sum of it, and the revision.
 *
 * Linked with --wrap for lease_recount and lock_drop, so that a process can die between freeing
 * slots and summing up anew. */
#define _GNU_SOURCE
#include "testing.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY, GO, DONE }; /* words in `shared` */

int __real_lease_recount(struct pix_segment *segment);
void __real_lock_drop(struct pix_segment *segment);
int __wrap_lease_recount(struct pix_segment *segment);
void __wrap_lock_drop(struct pix_segment *segment);

static void (*before_recount)(void);
static void (*before_drop)(void);

int __wrap_lease_recount(struct pix_segment *segment)
{
    if (before_recount != NULL)
        before_recount();
    return __real_lease_recount(segment);
}

void __wrap_lock_drop(struct pix_segment *segment)
{
    if (before_drop != NULL)
        before_drop();
    __real_lock_drop(segment);
}

static void die(void)
{
    (void)kill(getpid(), SIGKILL);
}

static void check_summary(pix_segment *segment, unsigned activities, unsigned blocks, int winner)
{
    uint64_t word = summary_of(segment);
    CHECK_EQUAL(activities_in(word), activities);
    CHECK_EQUAL(blocks_in(word), blocks);
    CHECK_EQUAL(winner_in(word), winner);
    CHECK_EQUAL(word >> PIX_RETIRED_BIT, 0);
}

/* What a reader that looks around is told. */
static void check_look(pix_segment *segment, unsigned activities, unsigned blocks, int winner)
{
    uint64_t word;
    int ghosts;
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_OK);
    CHECK_EQUAL(activities_in(word), activities);
    CHECK_EQUAL(blocks_in(word), blocks);
    CHECK_EQUAL(winner_in(word), winner);
}

static struct pix_details details_of(pix_segment *segment, int slot)
{
    struct pix_details details;
    const struct pix_slot *from = &segment->map->slot[slot];
    memcpy(&details, (const void *)from->details[from->sequence % 2], sizeof details);
    return details;
}

/* ---- one agent --------------------------------------------------------------------------------
 */

TEST(a_claim_shows_who_it_is)
{
    pix_segment *segment = create_segment(new_name());
    int slot = pix_claim(segment, 0, 4711, "main agent", 10, "pane 7", 6);
    CHECK(slot >= 0);
    const struct pix_slot *claimed = &segment->map->slot[slot];
    CHECK_EQUAL(claimed->pid, 4711);
    CHECK_EQUAL(claimed->session_length, 10);
    CHECK(memcmp(claimed->session, "main agent", 10) == 0);
    CHECK_EQUAL(claimed->pane_length, 6);
    CHECK(memcmp(claimed->pane, "pane 7", 6) == 0);
    CHECK_EQUAL(slots_alive(segment), 1);
    check_summary(segment, 0, 0, -1);
    CHECK_EQUAL(segment->map->lock, 0);
    pix_release(segment, slot);
    CHECK_EQUAL(slots_alive(segment), 0);
    pix_close(segment);
}

/* Field case B23. */
TEST(long_texts_are_cut)
{
    char text[2 * PIX_MESSAGE_BYTES];
    memset(text, 'x', sizeof text);
    pix_segment *segment = create_segment(new_name());
    int slot = pix_claim(segment, 0, 1, text, sizeof text, text, sizeof text);
    CHECK(slot >= 0);
    CHECK_EQUAL(segment->map->slot[slot].session_length, PIX_SESSION_BYTES);
    CHECK_EQUAL(segment->map->slot[slot].pane_length, PIX_PANE_BYTES);
    CHECK_EQUAL(pix_publish(segment, slot, 1, 0, 1, 1, text, sizeof text, text, sizeof text),
                PIX_OK);
    struct pix_details details = details_of(segment, slot);
    CHECK_EQUAL(details.source_length, PIX_SOURCE_BYTES);
    CHECK_EQUAL(details.message_length, PIX_MESSAGE_BYTES);
    CHECK_EQUAL(details.message[PIX_MESSAGE_BYTES - 1], 'x');
    /* nothing ran over into the neighbours */
    CHECK_EQUAL(segment->map->slot[slot].reserved, 0);
    CHECK_EQUAL(segment->map->slot[slot].padding[0], 0);
    CHECK_EQUAL(segment->map->slot[slot + 1].generation, 0);
    pix_close(segment);
}

TEST(publishing_says_everything)
{
    pix_segment *segment = create_segment(new_name());
    int slot = claim(segment);
    CHECK_EQUAL(pix_publish(segment, slot, 3, 2, 77, 123456, "tool", 4, "Proceed?", 8), PIX_OK);
    check_summary(segment, 3, 2, slot);
    struct pix_details details = details_of(segment, slot);
    CHECK_EQUAL(details.activities, 3);
    CHECK_EQUAL(details.blocks, 2);
    CHECK_EQUAL(details.since_ms, 123456);
    CHECK_EQUAL(details.source_length, 4);
    CHECK(memcmp(details.source, "tool", 4) == 0);
    CHECK_EQUAL(details.message_length, 8);
    CHECK(memcmp(details.message, "Proceed?", 8) == 0);
    CHECK(details.epoch <= summary_of(segment) >> PIX_SUMMARY_EPOCH);
    CHECK_EQUAL(pix_publish(segment, slot, 0, 0, 0, 123457, "", 0, "", 0), PIX_OK);
    check_summary(segment, 0, 0, -1);
    pix_close(segment);
}

TEST(saying_it_again_changes_the_epoch_alone)
{
    pix_segment *segment = create_segment(new_name());
    int slot = claim(segment);
    uint64_t last = summary_of(segment) >> PIX_SUMMARY_EPOCH;
    for (unsigned i = 0; i < 100; i++) {
        CHECK_EQUAL(publish(segment, slot, 2, 1, 5), PIX_OK);
        check_summary(segment, 2, 1, slot);
        CHECK(summary_of(segment) >> PIX_SUMMARY_EPOCH != last);
        last = summary_of(segment) >> PIX_SUMMARY_EPOCH;
    }
    pix_close(segment);
}

TEST(the_epoch_comes_round_without_touching_its_neighbours)
{
    pix_segment *segment = create_segment(new_name());
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 2, 1, 5), PIX_OK);
    segment->map->summary |= ((UINT64_C(1) << 20) - 1) << PIX_SUMMARY_EPOCH;
    CHECK_EQUAL(publish(segment, slot, 2, 1, 5), PIX_OK);
    check_summary(segment, 2, 1, slot);
    CHECK_EQUAL(summary_of(segment) >> PIX_SUMMARY_EPOCH, 0);
    pix_close(segment);
}

TEST(only_ones_own_slots_can_be_used)
{
    static const int others[] = {-1, 1, 5, PIX_AGENTS - 1, PIX_AGENTS, PIX_SLOTS, 1 << 20};
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pix_segment *other = join_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    CHECK_EQUAL(claim(other), 1);
    CHECK_EQUAL(publish(other, 1, 1, 0, 1), PIX_OK);
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK_EQUAL(publish(segment, others[i], 7, 7, 7), PIX_STALE);
        pix_release(segment, others[i]);
    }
    check_summary(segment, 1, 0, 1);
    CHECK_EQUAL(slots_alive(segment), 2);
    pix_close(other);
    pix_close(segment);
}

/* ---- several agents ---------------------------------------------------------------------------
 */

TEST(the_winner_is_the_last_opened_of_the_winning_kind)
{
    pix_segment *segment = create_segment(new_name());
    int first = claim(segment);
    int second = claim(segment);
    int third = claim(segment);
    CHECK_EQUAL(publish(segment, first, 1, 0, 100), PIX_OK);
    CHECK_EQUAL(publish(segment, second, 1, 0, 300), PIX_OK);
    CHECK_EQUAL(publish(segment, third, 1, 0, 200), PIX_OK);
    check_summary(segment, 3, 0, second);
    CHECK_EQUAL(publish(segment, first, 1, 1, 50), PIX_OK); /* a block, though the oldest */
    check_summary(segment, 3, 1, first);
    CHECK_EQUAL(publish(segment, third, 1, 1, 60), PIX_OK);
    check_summary(segment, 3, 2, third);
    /* each steps back in turn, and the next in rank takes its place */
    CHECK_EQUAL(publish(segment, third, 0, 0, 0), PIX_OK);
    check_summary(segment, 2, 1, first);
    pix_release(segment, first);
    check_summary(segment, 1, 0, second);
    CHECK_EQUAL(publish(segment, second, 0, 0, 0), PIX_OK);
    check_summary(segment, 0, 0, -1);
    pix_close(segment);
}

TEST(a_stamp_of_any_size_ranks)
{
    pix_segment *segment = create_segment(new_name());
    int first = claim(segment);
    int second = claim(segment);
    CHECK_EQUAL(publish(segment, first, 1, 0, UINT64_MAX), PIX_OK);
    check_summary(segment, 1, 0, first);
    CHECK_EQUAL(publish(segment, second, 0, 1, 0), PIX_OK); /* still a block */
    check_summary(segment, 1, 1, second);
    pix_close(segment);
}

TEST(counts_stop_at_their_greatest_and_come_back)
{
    pix_segment *segment = create_segment(new_name());
    int first = claim(segment);
    int second = claim(segment);
    CHECK_EQUAL(publish(segment, first, PIX_COUNT_MAX, PIX_COUNT_MAX - 1, 10), PIX_OK);
    check_summary(segment, PIX_COUNT_MAX, PIX_COUNT_MAX - 1, first);
    CHECK_EQUAL(publish(segment, second, 1, UINT32_MAX, 20), PIX_OK);
    check_summary(segment, PIX_COUNT_MAX, PIX_COUNT_MAX, second);
    CHECK_EQUAL(publish(segment, first, UINT32_MAX, UINT32_MAX, 30), PIX_OK);
    check_summary(segment, PIX_COUNT_MAX, PIX_COUNT_MAX, first);
    CHECK_EQUAL(publish(segment, first, 2, 1, 40), PIX_OK);
    check_summary(segment, 3, PIX_COUNT_MAX, first);
    CHECK_EQUAL(publish(segment, second, 0, 0, 0), PIX_OK);
    check_summary(segment, 2, 1, first);
    pix_close(segment);
}

/* Damage, of which no recount makes an end before the next second. */
TEST(sums_that_cannot_be_are_counted_anew)
{
    pix_segment *segment = create_segment(new_name());
    int first = claim(segment), second = claim(segment);
    CHECK_EQUAL(publish(segment, first, 2, 1, 1), PIX_OK);
    CHECK_EQUAL(publish(segment, second, 3, 0, 2), PIX_OK);
    segment->map->activities = 1;
    CHECK_EQUAL(publish(segment, first, 1, 1, 1), PIX_OK);
    check_summary(segment, 4, 1, first);
    segment->map->blocks = 0;
    CHECK_EQUAL(publish(segment, first, 1, 2, 1), PIX_OK);
    check_summary(segment, 4, 2, first);
    pix_close(segment);
}

TEST(a_winner_beyond_all_slots_is_not_believed)
{
    enum { BEYOND = 0x7ff };
    pix_segment *segment = create_segment(new_name());
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 2, 1, 1), PIX_OK);
    segment->map->summary |= (uint64_t)BEYOND << PIX_SUMMARY_WINNER;
    /* what would be its rank */
    ((uint64_t *)(void *)segment->map)[offsetof(struct pix_layout, rank) / 8 + BEYOND - 1] =
        UINT64_MAX;
    CHECK_EQUAL(publish(segment, slot, 1, 1, 1), PIX_OK);
    check_summary(segment, 1, 1, slot);
    pix_close(segment);
}

static void claim_all(pix_segment *segment)
{
    for (int expected = 0; expected < PIX_AGENTS; expected++)
        CHECK_EQUAL(claim(segment), expected);
}

/* Field case B17. */
TEST(a_thousand_agents_and_no_more)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pix_segment *late = join_segment(name);
    claim_all(segment);
    CHECK_EQUAL(claim(segment), PIX_FULL);
    CHECK_EQUAL(claim(late), PIX_FULL);
    CHECK_EQUAL(slots_alive(late), PIX_AGENTS);
    CHECK_EQUAL(publish(segment, PIX_AGENTS - 1, 1, 0, 1), PIX_OK);
    check_summary(segment, 1, 0, PIX_AGENTS - 1);
    pix_release(segment, 500);
    CHECK_EQUAL(claim(late), 500);
    CHECK_EQUAL(claim(late), PIX_FULL);
    pix_close(late);
    pix_close(segment);
}

static void claim_all_and_die(const void *name)
{
    pix_segment *segment = join_segment(name);
    claim_all(segment);
    for (int slot = 0; slot < PIX_AGENTS; slot++)
        CHECK_EQUAL(publish(segment, slot, 1, 1, 1), PIX_OK);
    die();
}

static void wait_for_death(pid_t child)
{
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Field case B17. */
/* Whoever frees a slot and dies amid that leaves a rank that counts for nobody: nor does it for who
 * claims the slot next. */
TEST(a_rank_that_was_left_over_is_not_the_newcomers)
{
    pix_segment *segment = create_segment(new_name());
    CHECK_EQUAL(claim(segment), 0);
    segment->map->rank[1] = UINT64_MAX;
    CHECK_EQUAL(claim(segment), 1);
    CHECK_EQUAL(publish(segment, 0, 1, 0, 1), PIX_OK);
    CHECK_EQUAL(publish(segment, 0, 2, 0, 2), PIX_OK);
    CHECK_EQUAL(winner_in(summary_of(segment)), 0);
    pix_close(segment);
}

TEST(a_table_full_of_ghosts_is_reclaimed)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    wait_for_death(start_child(claim_all_and_die, name));
    CHECK_EQUAL(slots_alive(segment), 0);
    check_look(segment, 0, 0, -1);
    check_summary(segment, 1000, 1000, 0); /* nobody has written since */
    claim_all(segment);
    check_summary(segment, 0, 0, -1);
    CHECK_EQUAL(slots_alive(segment), PIX_AGENTS);
    CHECK_EQUAL(claim(segment), PIX_FULL);
    pix_close(segment);
}

static void claim_and_wait(const void *name)
{
    pix_segment *segment = join_segment(name);
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 1, 1, sys_clock_ns()), PIX_OK);
    shared[READY]++;
    sleep_for_ever();
}

/* Field case C01. */
TEST(a_zombie_is_dead)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pid_t child = start_child(claim_and_wait, name);
    wait_until_shared(READY, 1);
    check_look(segment, 1, 1, 0);
    CHECK_EQUAL(kill(child, SIGKILL), 0);
    siginfo_t info;
    CHECK_EQUAL(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0); /* not reaped */
    CHECK_EQUAL(slots_alive(segment), 0);
    check_look(segment, 0, 0, -1);
    int slot = claim(segment);
    check_summary(segment, 0, 0, -1);
    CHECK(slot >= 0);
    wait_for_death(child);
    pix_close(segment);
}

TEST(a_lease_change_frees_the_dead_within_its_interval)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    pid_t child = start_child(claim_and_wait, name);
    wait_until_shared(READY, 1);
    kill_child(child);
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_OK);
    segment->looked_ns = 0; /* as if it were long ago */
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_OK);
    check_summary(segment, 1, 0, slot);
    CHECK_EQUAL(segment->map->used[0], UINT64_C(1) << slot);
    pix_close(segment);
}

static void claim_and_idle(const void *name)
{
    CHECK(claim(join_segment(name)) >= 0);
    shared[READY]++;
    sleep_for_ever();
}

/* Nobody who is idle makes readers look at each call, dead or not. */
TEST(one_who_died_idle_is_no_ghost)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    uint64_t word;
    int ghosts;
    CHECK_EQUAL(publish(segment, claim(segment), 2, 0, 1), PIX_OK);
    pid_t child = start_child(claim_and_idle, name);
    wait_until_shared(READY, 1);
    kill_child(child);
    CHECK_EQUAL(slots_alive(segment), 1);
    CHECK_EQUAL(segment->map->used[0], 3);
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_OK);
    CHECK_EQUAL(ghosts, 0);
    CHECK_EQUAL(word, summary_of(segment));
    pix_close(segment);
}

TEST(a_claim_in_a_dead_agents_slot_begins_from_nothing)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(publish(segment, claim(segment), 1, 1, 1), PIX_OK);
    pid_t child = start_child(claim_and_wait, name);
    wait_until_shared(READY, 1);
    kill_child(child);
    CHECK_EQUAL(claim(segment), 2); /* leaves the dead one's alone, and frees it */
    CHECK_EQUAL(claim(segment), 1);
    check_summary(segment, 1, 1, 0);
    CHECK_EQUAL(segment->map->rank[1], 0);
    struct pix_details details = details_of(segment, 1);
    CHECK_EQUAL(details.activities + details.blocks, 0);
    CHECK_EQUAL(details.message_length + details.source_length, 0);
    pix_close(segment);
}

TEST(look_tells_the_sum_of_the_living_and_writes_nothing)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 2, 0, 1), PIX_OK);
    pid_t child = start_child(claim_and_wait, name);
    wait_until_shared(READY, 1);
    check_look(segment, 3, 1, 1);
    kill_child(child);
    uint64_t before = summary_of(segment);
    uint64_t word;
    int ghosts;
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_OK);
    CHECK_EQUAL(ghosts, 1);
    check_look(segment, 2, 0, slot);
    CHECK_EQUAL(summary_of(segment), before);
    pix_close(segment);
}

static void leave_without_a_word(const void *name)
{
    pix_segment *segment = join_segment(name);
    CHECK_EQUAL(publish(segment, claim(segment), 1, 1, 5), PIX_OK);
}

/* Field case B18. */
TEST(an_exit_without_release_counts_as_death)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    expect_success(start_child(leave_without_a_word, name));
    CHECK_EQUAL(slots_alive(segment), 0);
    check_look(segment, 0, 0, -1);
    pix_close(segment);
}

static void check_stale(pix_segment *segment)
{
    uint64_t identity[5] = {1, 1, 1, 1, 1};
    uint64_t live[PIX_WORDS];
    uint64_t word;
    int ghosts;
    CHECK_EQUAL(claim(segment), PIX_STALE);
    CHECK_EQUAL(publish(segment, 0, 1, 1, 1), PIX_STALE);
    CHECK_EQUAL(pix_commit(segment, identity, 0, 0, &word), PIX_STALE);
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_STALE);
    CHECK_EQUAL(pix_live(segment, live), PIX_STALE);
    pix_release(segment, 0);
    segment_leave(segment);
    CHECK_EQUAL(((const struct pix_layout *)pix_memory(segment))->magic, PIX_MAGIC);
}

TEST(a_handle_that_was_left_is_stale_but_readable)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pix_segment *other = join_segment(name);
    CHECK_EQUAL(publish(segment, claim(segment), 1, 1, 1), PIX_OK);
    segment_leave(segment);
    check_stale(segment);
    CHECK_EQUAL(slots_alive(other), 0);
    check_look(other, 0, 0, -1);
    pix_close(segment);
    pix_close(other);
}

static pix_segment *inherited;

static void use_the_parents(const void *name)
{
    check_stale(inherited);
    pix_segment *segment = join_segment(name);
    CHECK_EQUAL(publish(segment, claim(segment), 1, 0, 1), PIX_OK);
    shared[READY] = 1;
    wait_until_shared(GO, 1);
    pix_close(inherited);
}

/* Field case B19. */
TEST(a_forked_childs_handle_is_stale_and_its_exit_frees_nothing_of_its_parents)
{
    const char *name = new_name();
    inherited = create_segment(name);
    CHECK_EQUAL(publish(inherited, claim(inherited), 0, 1, 1), PIX_OK);
    pid_t child = start_child(use_the_parents, name);
    wait_until_shared(READY, 1);
    check_summary(inherited, 1, 1, 0);
    shared[GO] = 1;
    expect_success(child);
    check_look(inherited, 0, 1, 0);
    CHECK_EQUAL(publish(inherited, 0, 0, 2, 1), PIX_OK);
    pix_close(inherited);
}

static void do_nothing(const void *unused)
{
    (void)unused;
}

/* Whoever looked for it in the child would look at memory that was given back: see the sanitizer.
 */
TEST(a_handle_that_was_closed_is_of_no_interest_to_a_child)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pix_segment *closed = join_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    CHECK_EQUAL(claim(closed), 1);
    pix_close(closed);
    expect_success(start_child(do_nothing, NULL));
    CHECK_EQUAL(slots_alive(segment), 1);
    pix_close(segment);
}

TEST(two_handles_of_one_process_are_two_agents)
{
    const char *name = new_name();
    pix_segment *first = create_segment(name);
    pix_segment *second = join_segment(name);
    CHECK_EQUAL(publish(first, claim(first), 1, 0, 1), PIX_OK);
    CHECK_EQUAL(publish(second, claim(second), 1, 0, 2), PIX_OK);
    CHECK_EQUAL(slots_alive(first), 2);
    check_look(first, 2, 0, 1);
    pix_close(second);
    check_look(first, 1, 0, 0);
    pix_close(first);
}

/* ---- deaths at which a reader must not be deceived --------------------------------------------
 */

/* An agent dies blocked; whoever `recoverer` is dies while it tidies up after it. */
static pix_segment *with_a_dead_recoverer(const char *name, void (*recoverer)(const void *))
{
    pix_segment *segment = create_segment(name);
    pid_t child = start_child(claim_and_wait, name);
    wait_until_shared(READY, 1);
    pid_t second = start_child(recoverer, name);
    wait_until_shared(DONE, 1);
    kill_child(child);
    shared[GO] = 1;
    wait_for_death(second);
    return segment;
}

static void claim_and_die_before_the_sum(const void *name)
{
    pix_segment *segment = join_segment(name);
    shared[DONE] = 1;
    wait_until_shared(GO, 1);
    before_recount = die;
    (void)claim(segment);
}

TEST(a_death_between_freeing_slots_and_summing_up_leaves_no_ghost)
{
    pix_segment *segment = with_a_dead_recoverer(new_name(), claim_and_die_before_the_sum);
    CHECK_EQUAL(slots_alive(segment), 0);
    check_look(segment, 0, 0, -1);
    pix_close(segment);
}

static void release_and_die_before_the_sum(const void *name)
{
    pix_segment *segment = join_segment(name);
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 1, 1, 9), PIX_OK);
    before_recount = die;
    pix_release(segment, slot);
}

TEST(a_death_within_a_release_leaves_no_ghost)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    wait_for_death(start_child(release_and_die_before_the_sum, name));
    CHECK_EQUAL(slots_alive(segment), 0);
    check_look(segment, 0, 0, -1);
    pix_close(segment);
}

static pix_segment *read_meanwhile;

/* The message of the summary's winner, as a reader takes it. */
static void read_the_first_message(void)
{
    before_recount = NULL;
    uint64_t word = summary_of(read_meanwhile);
    const struct pix_slot *slot = &read_meanwhile->map->slot[winner_in(word)];
    struct pix_details details = details_of(read_meanwhile, winner_in(word));
    if (details.epoch == (word >> PIX_SUMMARY_EPOCH) + 1) /* too new: the other copy */
        memcpy(&details, (const void *)slot->details[(slot->sequence + 1) % 2], sizeof details);
    CHECK_EQUAL(details.message_length, 5);
    CHECK(memcmp(details.message, "first", 5) == 0);
}

/* A death between the details and the word, made by hand: until the word is another, recovery must
 * leave the copy alone that the word stands for. */
TEST(recovery_keeps_the_details_of_the_word_that_is_shown)
{
    const char *name = new_name();
    pix_segment *survivor = create_segment(name);
    pix_segment *dying = join_segment(name);
    struct pix_layout *map = survivor->map;
    CHECK_EQUAL(claim(survivor), 0);
    CHECK_EQUAL(claim(dying), 1);
    CHECK_EQUAL(pix_publish(dying, 1, 1, 1, 5, 1, "test", 4, "first", 5), PIX_OK);
    uint64_t word = map->summary;
    CHECK_EQUAL(pix_publish(dying, 1, 1, 1, 6, 1, "test", 4, "never announced", 15), PIX_OK);
    map->summary = word;
    map->lock = dying->generation[1] << 16 | 2;
    pix_close(dying);
    read_meanwhile = survivor;
    before_recount = read_the_first_message;
    CHECK_EQUAL(publish(survivor, 0, 1, 0, 1), PIX_OK);
    CHECK(before_recount == NULL);
    check_summary(survivor, 1, 0, 0);
    pix_close(survivor);
}

/* A death between the details and the rank, which is between two stores: made by hand. */
TEST(a_death_within_a_publish_does_not_count_beside_another_ghost)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pid_t blocked = start_child(claim_and_wait, name);
    wait_until_shared(READY, 1);
    pid_t publishing = start_child(claim_and_wait, name);
    wait_until_shared(READY, 2);
    kill_child(blocked);
    kill_child(publishing);
    segment->map->rank[1] = 0;
    segment->map->summary &= ~(UINT64_C(1) | UINT64_C(1) << PIX_SUMMARY_BLOCKS); /* one less */
    segment->map->lock = segment->map->slot[1].generation << 16 | 2;
    check_look(segment, 0, 0, -1);
    pix_close(segment);
}

static void publish_and_die(const void *name)
{
    pix_segment *segment = join_segment(name);
    int slot = claim(segment);
    CHECK_EQUAL(pix_publish(segment, slot, 1, 0, 1, 1, "old", 3, "old", 3), PIX_OK);
    before_drop = die;
    (void)pix_publish(segment, slot, 0, 1, 2, 2, "new", 3, "new", 3);
}

/* Field case B23. */
TEST(a_dead_writer_never_stops_a_reader)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    wait_for_death(start_child(publish_and_die, name));
    struct pix_details details = details_of(segment, 0);
    CHECK(memcmp(details.message, "new", 3) == 0);
    check_look(segment, 0, 0, -1);
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_OK);
    check_summary(segment, 1, 0, slot);
    pix_close(segment);
}

/* ---- the revision -----------------------------------------------------------------------------
 */

static uint64_t commit(pix_segment *segment, uint64_t identity, int if_new, uint64_t known)
{
    const uint64_t identities[5] = {1, 2, identity, 4, 5};
    uint64_t revision = 0;
    CHECK_EQUAL(pix_commit(segment, identities, if_new, known, &revision), PIX_OK);
    CHECK_EQUAL(revision_of(segment), revision);
    return revision;
}

/* A reader may have the word in hand for any time: what it then finds in the winner's slot must be
 * what belonged to the word, or told from it. */
TEST(the_details_of_a_slot_that_was_freed_stay_or_are_newer_than_every_word_before)
{
    pix_segment *segment = create_segment(new_name());
    int gone = claim(segment), staying = claim(segment);
    CHECK_EQUAL(publish(segment, gone, 0, 1, 1), PIX_OK);
    CHECK_EQUAL(publish(segment, staying, 1, 0, 2), PIX_OK);
    uint64_t before = summary_of(segment) >> PIX_SUMMARY_EPOCH;
    pix_release(segment, gone);
    CHECK_EQUAL(summary_of(segment) >> PIX_SUMMARY_EPOCH, before + 1);
    CHECK_EQUAL(details_of(segment, gone).blocks, 1);
    CHECK(details_of(segment, gone).epoch <= before);
    CHECK_EQUAL(claim(segment), gone);
    CHECK_EQUAL(details_of(segment, gone).blocks, 0);
    CHECK(details_of(segment, gone).epoch > before + 1);
    pix_close(segment);
}

TEST(a_commit_makes_a_revision)
{
    pix_segment *segment = create_segment(new_name());
    CHECK_EQUAL(claim(segment), 0);
    uint64_t first = revision_of(segment);
    CHECK_EQUAL(commit(segment, 7, 0, 0), first + 1);
    CHECK_EQUAL(commit(segment, 7, 0, 0), first + 2); /* also where the identity is known */
    CHECK_EQUAL(commit(segment, 7, 1, 0), first + 2); /* but not if it must be new */
    CHECK_EQUAL(commit(segment, 8, 1, 0), first + 3);
    CHECK_EQUAL(commit(segment, 8, 0, first + 99), first + 100);
    CHECK_EQUAL(commit(segment, 9, 1, first + 100), first + 101);
    CHECK_EQUAL(segment->map->identity[2], 9);
    CHECK_EQUAL(segment->map->lock, 0);
    pix_close(segment);
}

static void commit_the_same(const void *name)
{
    pix_segment *segment = join_segment(name);
    shared[READY]++;
    wait_until_shared(GO, 1);
    (void)commit(segment, 42, 1, 0);
    pix_close(segment);
}

TEST(many_that_notice_one_file_make_one_revision)
{
    enum { PROCESSES = 8 };
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    uint64_t first = revision_of(segment);
    pid_t children[PROCESSES];
    for (unsigned i = 0; i < PROCESSES; i++)
        children[i] = start_child(commit_the_same, name);
    wait_until_shared(READY, PROCESSES);
    shared[GO] = 1;
    for (unsigned i = 0; i < PROCESSES; i++)
        expect_success(children[i]);
    CHECK_EQUAL(revision_of(segment), first + 1);
    pix_close(segment);
}

TEST(a_visitor_is_not_shown_and_leaves_nothing)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pix_segment *other = join_segment(name);
    uint64_t first = revision_of(segment);
    for (unsigned i = 1; i <= 100; i++)
        CHECK_EQUAL(commit(segment, i, 1, 0), first + i);
    CHECK_EQUAL(slots_alive(segment), 0);
    for (unsigned i = 0; i < PIX_WORDS; i++) {
        CHECK_EQUAL(segment->map->used[i], 0);
        CHECK_EQUAL(segment->own[i], 0);
    }
    for (int slot = PIX_AGENTS; slot < PIX_SLOTS; slot++)
        CHECK_EQUAL(sys_byte_probe(other->descriptor, slot), SYS_BYTE_FREE);
    pix_close(other);
    pix_close(segment);
}

TEST(a_visitor_finds_room_beside_a_thousand_agents)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pix_segment *visitor = join_segment(name);
    claim_all(segment);
    uint64_t first = revision_of(segment);
    CHECK_EQUAL(commit(visitor, 1, 1, 0), first + 1);
    CHECK_EQUAL(segment->map->identity[2], 1); /* so it had the lock */
    pix_close(visitor);
    pix_close(segment);
}

TEST(too_many_visitors_still_make_revisions)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pix_segment *others = join_segment(name);
    for (int slot = PIX_AGENTS; slot < PIX_SLOTS; slot++)
        CHECK_EQUAL(sys_byte_lock(others->descriptor, slot), 0);
    uint64_t first = revision_of(segment);
    CHECK_EQUAL(commit(segment, 1, 0, 0), first + 1);
    CHECK_EQUAL(segment->map->identity[2], 0); /* not recorded: without the lock it would be torn */
    pix_close(others);
    CHECK_EQUAL(commit(segment, 1, 1, 0), first + 2);
    CHECK_EQUAL(segment->map->identity[2], 1);
    pix_close(segment);
}

TEST(a_claim_raises_a_revision_that_went_back)
{
    pix_segment *segment = create_segment(new_name());
    uint64_t first = revision_of(segment);
    CHECK_EQUAL(pix_claim(segment, first, 1, "", 0, "", 0), 0);
    CHECK_EQUAL(revision_of(segment), first);
    CHECK_EQUAL(pix_claim(segment, first + 10, 1, "", 0, "", 0), 1);
    CHECK_EQUAL(revision_of(segment), first + 11);
    CHECK_EQUAL(pix_claim(segment, first + 5, 1, "", 0, "", 0), 2);
    CHECK_EQUAL(revision_of(segment), first + 11);
    pix_close(segment);
}

TEST(no_known_revision_can_retire_a_segment)
{
    static const uint64_t absurd[] = {UINT64_MAX, INT64_MAX, UINT64_C(1) << 63};
    for (unsigned i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        const char *name = new_name();
        const uint64_t identity[5] = {0};
        uint64_t revision;
        pix_segment *segment;
        create_file(name, 0, 0600);
        CHECK_EQUAL(pix_open(name, absurd[i], PIX_MADE, &segment), PIX_OK);
        (void)pix_claim(segment, absurd[i], 1, "", 0, "", 0);
        (void)pix_commit(segment, identity, 0, absurd[i], &revision);
        CHECK_EQUAL(revision_of(segment) >> PIX_RETIRED_BIT, 0);
        CHECK(revision_of(segment) != 0);
        pix_close(segment);
    }
}
