/* changes.c: sleeping until something changes. A sleeper here sleeps for longer than any test may
 * last: one that is not woken makes its test fail by the alarm. */
#define _GNU_SOURCE
#include "testing.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENDLESS_NS UINT64_C(3600000000000)

enum { ASLEEP = 0, SEEN = 1, GO = 2 }; /* words of `shared` */

static uint32_t changes_of(pix_segment *segment)
{
    return atomic_load(&((struct pix_layout *)pix_memory(segment))->changes);
}

static uint32_t number_of(pix_segment *segment)
{
    return changes_of(segment) >> 1;
}

static bool somebody_sleeps(pix_segment *segment)
{
    return (changes_of(segment) & 1) != 0;
}

/* Sleeps until the number is not what it was at the start any more. */
static void sleeper(const void *name)
{
    pix_segment *segment = join_segment(name);
    uint32_t before = changes_of(segment);
    atomic_fetch_add(&shared[ASLEEP], 1);
    while (number_of(segment) == before >> 1)
        pix_wait(segment, before, ENDLESS_NS);
    _exit(0);
}

static void wait_for_the_bit(pix_segment *segment)
{
    while (!somebody_sleeps(segment))
        sys_sleep_until(sys_clock_ns() + SYS_NS_PER_MS / 10);
}

TEST(each_change_counts_once)
{
    pix_segment *segment = create_segment(new_name());
    uint64_t revision;
    int slot = claim(segment);
    uint32_t before = number_of(segment);
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_OK);
    CHECK_EQUAL(number_of(segment), before + 1);
    CHECK_EQUAL(pix_commit(segment, (uint64_t[5]){1, 2, 3, 4, 5}, 0, 0, &revision), PIX_OK);
    CHECK_EQUAL(number_of(segment), before + 2);
    pix_release(segment, slot);
    CHECK_EQUAL(number_of(segment), before + 3);
}

/* What was read is not what is there any more: there is nothing to sleep for. */
TEST(what_changed_before_is_not_slept_through)
{
    pix_segment *segment = create_segment(new_name());
    int slot = claim(segment);
    uint32_t before = changes_of(segment);
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_OK);
    pix_wait(segment, before, ENDLESS_NS);
    CHECK(!somebody_sleeps(segment));
}

TEST(a_timeout_ends_sleeping)
{
    pix_segment *segment = create_segment(new_name());
    uint32_t before = changes_of(segment);
    pix_wait(segment, before, SYS_NS_PER_MS);
    CHECK_EQUAL(number_of(segment), before >> 1);
}

static void every_sleeper_wakes(int (*change)(pix_segment *segment, int slot))
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    pid_t children[3];
    for (unsigned i = 0; i < 3; i++)
        children[i] = start_child(sleeper, name);
    wait_until_shared(ASLEEP, 3);
    wait_for_the_bit(segment);
    CHECK_EQUAL(change(segment, slot), PIX_OK);
    for (unsigned i = 0; i < 3; i++)
        expect_success(children[i]);
}

static int change_leases(pix_segment *segment, int slot)
{
    return publish(segment, slot, 0, 1, 1);
}

TEST(a_lease_wakes_every_sleeper)
{
    every_sleeper_wakes(change_leases);
}

static int change_revision(pix_segment *segment, int slot)
{
    uint64_t revision;
    (void)slot;
    return pix_commit(segment, (uint64_t[5]){1, 2, 3, 4, 5}, 0, 0, &revision);
}

TEST(a_revision_wakes_every_sleeper)
{
    every_sleeper_wakes(change_revision);
}

static int remove_and_notice(pix_segment *segment, int slot)
{
    CHECK_EQUAL(sys_shm_unlink(segment->name), 0);
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_RETIRED);
    return PIX_OK;
}

TEST(a_removed_segment_wakes_every_sleeper)
{
    every_sleeper_wakes(remove_and_notice);
}

TEST(a_revision_made_without_the_lock_wakes_every_sleeper)
{
    const char *name = new_name();
    pix_segment *stopped = create_segment(name);
    pix_segment *segment = join_segment(name);
    int held = claim(stopped);
    pid_t child = start_child(sleeper, name);
    wait_until_shared(ASLEEP, 1);
    wait_for_the_bit(segment);
    atomic_store(&segment->map->lock, stopped->generation[held] << 16 | (unsigned)(held + 1));
    CHECK_EQUAL(change_revision(segment, -1), PIX_OK);
    expect_success(child);
    atomic_store(&segment->map->lock, 0);
}

TEST(a_dead_sleeper_costs_one_needless_call)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    pid_t child = start_child(sleeper, name);
    wait_until_shared(ASLEEP, 1);
    wait_for_the_bit(segment);
    kill_child(child);
    CHECK(somebody_sleeps(segment));
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_OK);
    CHECK(!somebody_sleeps(segment));
}

/* Sleeps once, whatever the number is, and says so. */
static void light_sleeper(const void *name)
{
    pix_segment *segment = join_segment(name);
    uint32_t before = changes_of(segment);
    pix_wait(segment, before, ENDLESS_NS);
    CHECK_EQUAL(number_of(segment), before >> 1);
    _exit(0);
}

TEST(sleepers_can_be_woken_for_nothing)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pid_t child = start_child(light_sleeper, name);
    int status;
    wait_for_the_bit(segment);
    /* It may have set its bit and not sleep yet: then it misses one. */
    while (waitpid(child, &status, WNOHANG) == 0)
        pix_wake(segment);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void on_signal(int number)
{
    (void)number;
    atomic_store(&shared[SEEN], 1);
}

static void interrupted_sleeper(const void *name)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pix_segment *segment = join_segment(name);
    CHECK_EQUAL(sigaction(SIGUSR1, &action, NULL), 0);
    atomic_store(&shared[ASLEEP], 1);
    while (atomic_load(&shared[SEEN]) == 0)
        pix_wait(segment, changes_of(segment), SYS_NS_PER_MS * PIX_LOOK_MS);
    _exit(0);
}

TEST(a_signal_ends_sleeping)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pid_t child = start_child(interrupted_sleeper, name);
    wait_until_shared(ASLEEP, 1);
    wait_for_the_bit(segment);
    CHECK_EQUAL(kill(child, SIGUSR1), 0);
    expect_success(child);
}

/* Two who take turns, each asleep until the other has changed something: one lost wake-up, and both
 * sleep for ever. */
static void partner(const void *name)
{
    pix_segment *segment = join_segment(name);
    int slot = claim(segment);
    for (uint64_t turn = 0; turn < effort(20000); turn++) {
        uint32_t before;
        while (before = changes_of(segment), atomic_load(&shared[GO]) < 2 * turn + 1)
            pix_wait(segment, before, ENDLESS_NS);
        atomic_store(&shared[GO], 2 * turn + 2);
        CHECK_EQUAL(publish(segment, slot, 1, 0, turn + 1), PIX_OK);
    }
    _exit(0);
}

TEST(no_wake_up_is_lost)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    pid_t child = start_child(partner, name);
    for (uint64_t turn = 0; turn < effort(20000); turn++) {
        uint32_t before;
        atomic_store(&shared[GO], 2 * turn + 1);
        CHECK_EQUAL(publish(segment, slot, 0, 1, turn + 1), PIX_OK);
        while (before = changes_of(segment), atomic_load(&shared[GO]) < 2 * turn + 2)
            pix_wait(segment, before, ENDLESS_NS);
    }
    expect_success(child);
}
