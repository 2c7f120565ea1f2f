/* lock.c: the lock word: dead holders, stopped holders, damage, and the semaphore beside it.
 *
 * Linked with --wrap for lock_take, lock_drop, sys_sleep_until and sys_sem_post_if_zero, so that a
 * process can be stopped or die with the lock in its hands, or just before it reaches for it, or
 * asleep; for sys_byte_lock and sys_byte_probe, to let others act between two looks at the slots,
 * or to be stopped with the byte just locked; and for sys_byte_share, to let it fail. */
#define _GNU_SOURCE
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY, GO, DONE, POSTS }; /* words in `shared` */

int __real_lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns);
void __real_lock_drop(struct pix_segment *segment);
void __real_sys_sem_post_if_zero(sem_t *semaphore);
int __real_sys_byte_lock(int descriptor, int64_t byte);
enum sys_byte __real_sys_byte_probe(int descriptor, int64_t byte);
void __real_sys_sleep_until(uint64_t deadline_ns);
int __wrap_lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns);
void __wrap_lock_drop(struct pix_segment *segment);
void __wrap_sys_sem_post_if_zero(sem_t *semaphore);
int __wrap_sys_byte_lock(int descriptor, int64_t byte);
int __real_sys_byte_share(int descriptor, int64_t byte);
int __wrap_sys_byte_share(int descriptor, int64_t byte);
enum sys_byte __wrap_sys_byte_probe(int descriptor, int64_t byte);
void __wrap_sys_sleep_until(uint64_t deadline_ns);

static void (*before_take)(void);
static void (*after_take)(struct pix_segment *segment);
static void (*before_drop)(void);
static void (*before_sleep)(void);
static void (*after_refusal)(void);
static void (*after_seizing)(void);
static int sharing_error;
static void (*after_death_was_seen)(void);
static bool kernel_cannot_tell;

int __wrap_lock_take(struct pix_segment *segment, unsigned slot, uint64_t *deadline_ns)
{
    if (before_take != NULL)
        before_take();
    int result = __real_lock_take(segment, slot, deadline_ns);
    if (after_take != NULL)
        after_take(segment);
    return result;
}

void __wrap_lock_drop(struct pix_segment *segment)
{
    if (before_drop != NULL)
        before_drop();
    __real_lock_drop(segment);
}

void __wrap_sys_sem_post_if_zero(sem_t *semaphore)
{
    shared[POSTS]++;
    __real_sys_sem_post_if_zero(semaphore);
}

int __wrap_sys_byte_lock(int descriptor, int64_t byte)
{
    int result = __real_sys_byte_lock(descriptor, byte);
    if (result < 0 && after_refusal != NULL) {
        int error = errno;
        after_refusal();
        errno = error;
    }
    if (result == 0 && after_seizing != NULL)
        after_seizing();
    return result;
}

int __wrap_sys_byte_share(int descriptor, int64_t byte)
{
    if (sharing_error != 0) {
        errno = sharing_error;
        return -1;
    }
    return __real_sys_byte_share(descriptor, byte);
}

enum sys_byte __wrap_sys_byte_probe(int descriptor, int64_t byte)
{
    enum sys_byte result = __real_sys_byte_probe(descriptor, byte);
    if (result == SYS_BYTE_FREE && after_death_was_seen != NULL)
        after_death_was_seen();
    return kernel_cannot_tell ? SYS_BYTE_UNKNOWN : result;
}

void __wrap_sys_sleep_until(uint64_t deadline_ns)
{
    if (before_sleep != NULL)
        before_sleep();
    __real_sys_sleep_until(deadline_ns);
}

/* What a holder does: it publishes (1, 1) and dies, stops or waits with the lock in its hands. */
static void hold(const char *name, void (*then)(void))
{
    pix_segment *segment = join_segment(name);
    int slot = claim(segment);
    before_drop = then;
    CHECK_EQUAL(publish(segment, slot, 1, 1, sys_clock_ns()), PIX_OK);
    before_drop = NULL;
    shared[DONE]++;
    wait_until_shared(GO, 2);
    CHECK_EQUAL(publish(segment, slot, 2, 2, sys_clock_ns()), PIX_OK);
}

static void die(void)
{
    (void)kill(getpid(), SIGKILL);
}

static void wait_for_go(void)
{
    shared[READY]++;
    wait_until_shared(GO, 1);
}

static void hold_and_die(const void *name)
{
    hold(name, die);
}

static void hold_and_stop(const void *name)
{
    hold(name, stop_here);
}

static void hold_and_wait(const void *name)
{
    hold(name, wait_for_go);
}

static void reap_killed(pid_t child)
{
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A segment whose lock names a dead owner, with a survivor that has slot 0. */
static pix_segment *with_dead_holder(const char *name)
{
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    reap_killed(start_child(hold_and_die, name));
    CHECK(segment->map->lock != 0);
    CHECK(segment->map->used[0] == 3);
    return segment;
}

static int commit(pix_segment *segment, uint64_t *revision)
{
    const uint64_t identity[5] = {1, 2, 3, 4, 5};
    return pix_commit(segment, identity, 0, 0, revision);
}

/* Nothing of the dead is left, and `slot` is the only one that holds anything. */
static void check_recovered(pix_segment *segment, unsigned activities, uint64_t used)
{
    CHECK_EQUAL(segment->map->lock, 0);
    CHECK_EQUAL(segment->map->used[0], used);
    CHECK_EQUAL(activities_in(summary_of(segment)), activities);
    CHECK_EQUAL(blocks_in(summary_of(segment)), 0);
    CHECK_EQUAL(segment->map->waiting[0], 0);
}

/* ---- dead holders -----------------------------------------------------------------------------
 */

/* Field case B02. */
TEST(a_dead_holder_is_recovered_by_a_publish)
{
    pix_segment *segment = with_dead_holder(new_name());
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_OK);
    check_recovered(segment, 5, 1);
    pix_close(segment);
}

TEST(a_dead_holder_is_recovered_by_a_claim)
{
    const char *name = new_name();
    pix_segment *segment = with_dead_holder(name);
    pix_segment *newcomer = join_segment(name);
    CHECK(claim(newcomer) > 0);
    check_recovered(segment, 0, segment->map->used[0]);
    CHECK_EQUAL(slots_alive(segment), 2);
    pix_close(newcomer);
    pix_close(segment);
}

static void check_that_nothing_is_announced(struct pix_segment *segment)
{
    after_take = NULL;
    CHECK_EQUAL(summary_of(segment) & UINT32_MAX, 0);
}

/* The heir has the owner's slot and byte, but what the owner held is gone with it: also in the sum
 * that taking the lock over stores, after which the heir may die in turn. */
TEST(a_dead_holder_is_recovered_by_the_heir_of_its_slot)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    reap_killed(start_child(hold_and_die, name));
    /* every other slot is taken, so that this one must be inherited, and with it the lock */
    pix_segment *others = join_segment(name);
    for (int slot = 1; slot < PIX_AGENTS; slot++)
        CHECK_EQUAL(sys_byte_lock(others->descriptor, slot), 0);
    after_take = check_that_nothing_is_announced;
    CHECK_EQUAL(claim(segment), 0);
    CHECK(after_take == NULL);
    check_recovered(segment, 0, 1);
    pix_close(others);
    pix_close(segment);
}

TEST(a_dead_holder_is_recovered_by_a_commit)
{
    const char *name = new_name();
    pix_segment *segment = with_dead_holder(name);
    pix_segment *visitor = join_segment(name);
    uint64_t revision;
    CHECK_EQUAL(commit(visitor, &revision), PIX_OK);
    check_recovered(segment, 0, 1);
    CHECK_EQUAL(revision_of(segment), revision);
    pix_close(visitor);
    pix_close(segment);
}

TEST(a_dead_holder_is_recovered_by_a_release)
{
    pix_segment *segment = with_dead_holder(new_name());
    pix_release(segment, 0);
    check_recovered(segment, 0, 0);
    pix_close(segment);
}

static void visit_and_die(const void *name)
{
    uint64_t revision;
    before_drop = die;
    (void)commit(join_segment(name), &revision);
}

TEST(a_dead_visitor_is_recovered)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    uint64_t first = revision_of(segment);
    reap_killed(start_child(visit_and_die, name));
    CHECK_EQUAL(revision_of(segment), first + 1); /* it was made, and stays */
    CHECK_EQUAL(claim(segment), 0);
    check_recovered(segment, 0, 1);
    CHECK_EQUAL(revision_of(segment), first + 1);
    pix_close(segment);
}

static void take_over_and_die(const void *name)
{
    pix_segment *segment = join_segment(name);
    before_drop = die;
    (void)claim(segment);
}

TEST(a_chain_of_dead_recoverers_is_recovered)
{
    const char *name = new_name();
    pix_segment *segment = with_dead_holder(name);
    for (unsigned i = 0; i < 20; i++)
        reap_killed(start_child(take_over_and_die, name));
    CHECK_EQUAL(publish(segment, 0, 3, 0, 1), PIX_OK);
    check_recovered(segment, 3, 1);
    pix_close(segment);
}

static void wait_and_steal(const void *name)
{
    pix_segment *segment = join_segment(name);
    CHECK_EQUAL(claim(segment), 1);
    shared[READY] = 1;
    wait_until_shared(GO, 1);
    before_drop = stop_here;
    (void)publish(segment, 1, 1, 0, 1);
}

static pid_t quicker;

static void let_the_other_steal(void)
{
    after_death_was_seen = NULL;
    shared[GO] = 1;
    wait_until_stopped(quicker);
}

/* Both have seen that the owner is dead; the slower one must not take the lock from the quicker. */
TEST(of_two_who_steal_one_gets_it)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    CHECK_EQUAL(publish(segment, 0, 1, 0, 1), PIX_OK);
    quicker = start_child(wait_and_steal, name);
    wait_until_shared(READY, 1);
    pid_t dead = start_child(hold_and_die, name);
    reap_killed(dead);
    after_death_was_seen = let_the_other_steal;
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_BUSY);
    CHECK(after_death_was_seen == NULL);
    CHECK_EQUAL(segment->map->lock & 0xffff, 1 + 1);
    kill_child(quicker);
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_OK);
    check_recovered(segment, 5, 1);
    pix_close(segment);
}

TEST(where_the_kernel_cannot_tell_nobody_is_robbed)
{
    pix_segment *segment = with_dead_holder(new_name());
    kernel_cannot_tell = true;
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_BUSY);
    CHECK_EQUAL(slots_alive(segment), 2);
    kernel_cannot_tell = false;
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_OK);
    check_recovered(segment, 5, 1);
    pix_close(segment);
}

/* ---- stopped ones -----------------------------------------------------------------------------
 */

/* Field case B04. */
TEST(a_stopped_holder_delays_and_is_not_robbed)
{
    const char *name = new_name();
    uint64_t revision;
    uint64_t word;
    int ghosts;
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    pid_t holder = start_child(hold_and_stop, name);
    wait_until_stopped(holder);
    uint64_t lock = segment->map->lock;
    uint64_t before = revision_of(segment);
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_BUSY);
    CHECK_EQUAL(claim(segment), PIX_BUSY);
    pix_segment *other = join_segment(name);
    CHECK_EQUAL(sys_byte_probe(other->descriptor, 2), SYS_BYTE_FREE); /* given back */
    pix_close(other);
    CHECK_EQUAL(pix_look(segment, &word, &ghosts), PIX_OK); /* readers do not mind */
    CHECK_EQUAL(ghosts, 0);
    CHECK_EQUAL(slots_alive(segment), 2);
    CHECK_EQUAL(commit(segment, &revision), PIX_OK); /* nor those who wait for a change */
    CHECK_EQUAL(revision, before + 1);
    CHECK_EQUAL(revision_of(segment), before + 1);
    CHECK_EQUAL(segment->map->lock, lock);

    CHECK_EQUAL(kill(holder, SIGCONT), 0);
    wait_until_shared(DONE, 1);
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_OK);
    shared[GO] = 2;
    expect_success(holder);
    CHECK_EQUAL(blocks_in(summary_of(segment)), 2);
    pix_close(segment);
}

TEST(a_release_beside_a_stopped_holder_leaves_the_slot_to_others)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    CHECK_EQUAL(publish(segment, 0, 7, 0, 1), PIX_OK);
    pid_t holder = start_child(hold_and_stop, name);
    wait_until_stopped(holder);
    pix_release(segment, 0);
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_STALE);
    CHECK_EQUAL(slots_alive(segment), 1);
    kill_child(holder);
    CHECK(claim(segment) >= 0);
    check_recovered(segment, 0, segment->map->used[0]);
    CHECK_EQUAL(slots_alive(segment), 1);
    pix_close(segment);
}

TEST(a_stopped_holder_that_is_killed_is_recovered)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    pid_t holder = start_child(hold_and_stop, name);
    wait_until_stopped(holder);
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_BUSY);
    kill_child(holder);
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_OK);
    check_recovered(segment, 5, 1);
    pix_close(segment);
}

static void seize_and_stop(const void *name)
{
    pix_segment *segment = join_segment(name);
    before_take = stop_here;
    int slot = claim(segment);
    before_take = NULL;
    CHECK(slot >= 0);
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_OK);
}

/* The newcomer has the byte that the lock word names, and is stopped before it inherits the lock:
 * the word must not be taken for its own. */
TEST(a_stopped_newcomer_in_a_dead_holders_slot_wedges_nobody)
{
    const char *name = new_name();
    pix_segment *survivor = create_segment(name);
    pix_segment *others = join_segment(name);
    CHECK_EQUAL(claim(survivor), 0);
    reap_killed(start_child(hold_and_die, name));
    for (int slot = 2; slot < PIX_AGENTS; slot++)
        CHECK_EQUAL(sys_byte_lock(others->descriptor, slot), 0);
    pid_t newcomer = start_child(seize_and_stop, name);
    wait_until_stopped(newcomer);
    CHECK_EQUAL(sys_byte_probe(survivor->descriptor, 1), SYS_BYTE_SHARED);
    CHECK_EQUAL(publish(survivor, 0, 5, 0, 1), PIX_OK);
    CHECK_EQUAL(survivor->map->lock, 0);
    CHECK_EQUAL(kill(newcomer, SIGCONT), 0);
    expect_success(newcomer);
    CHECK_EQUAL(publish(survivor, 0, 5, 0, 1), PIX_OK);
    CHECK_EQUAL(survivor->map->lock, 0);
    pix_close(others);
    pix_close(survivor);
}

static void ignore(int number)
{
    (void)number;
}

static void seize_the_byte_and_stop(const void *name)
{
    pix_segment *segment = join_segment(name);
    after_seizing = stop_here;
    int slot = claim(segment);
    after_seizing = NULL;
    CHECK_EQUAL(slot, 1);
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_OK);
    shared[DONE] = 1;
    wait_until_shared(GO, 1);
}

/* Stopped a little earlier, with the byte and without the generation: nor is it taken for the
 * slot's owner, whose lock and leases these are. */
TEST(a_newcomer_stopped_with_nothing_but_a_dead_holders_byte_wedges_nobody)
{
    const char *name = new_name();
    pix_segment *survivor = create_segment(name);
    pix_segment *others = join_segment(name);
    CHECK_EQUAL(claim(survivor), 0);
    reap_killed(start_child(hold_and_die, name));
    for (int slot = 2; slot < PIX_AGENTS; slot++)
        CHECK_EQUAL(sys_byte_lock(others->descriptor, slot), 0);
    pid_t newcomer = start_child(seize_the_byte_and_stop, name);
    wait_until_stopped(newcomer);
    CHECK_EQUAL(sys_byte_probe(survivor->descriptor, 1), SYS_BYTE_EXCLUSIVE);
    CHECK_EQUAL(sys_byte_lock(others->descriptor, 1), -1); /* nobody else gets the slot */
    CHECK_EQUAL(slots_alive(survivor), 1);
    CHECK_EQUAL(publish(survivor, 0, 5, 0, 1), PIX_OK);
    check_recovered(survivor, 5, 1);
    CHECK_EQUAL(kill(newcomer, SIGCONT), 0);
    wait_until_shared(DONE, 1);
    CHECK_EQUAL(slots_alive(survivor), 2);
    CHECK_EQUAL(activities_in(summary_of(survivor)), 6);
    shared[GO] = 1;
    expect_success(newcomer);
    CHECK_EQUAL(publish(survivor, 0, 5, 0, 1), PIX_OK);
    CHECK_EQUAL(survivor->map->lock, 0);
    pix_close(others);
    pix_close(survivor);
}

TEST(a_byte_that_cannot_be_shared_is_let_go)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    sharing_error = ENOLCK;
    CHECK_EQUAL(claim(segment), PIX_SYSTEM);
    CHECK_EQUAL(errno, ENOLCK);
    sharing_error = 0;
    pix_segment *other = join_segment(name);
    CHECK_EQUAL(claim(other), 0);
    pix_close(other);
    pix_close(segment);
}

/* Field case B05. Signals that arrive all the time neither shorten the wait to nothing nor make it
 * endless. */
TEST(a_wait_keeps_its_deadline_under_signals)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    struct sigaction action = {.sa_handler = ignore}; /* no SA_RESTART */
    struct itimerval often = {{0, 1000}, {0, 1000}};
    CHECK_EQUAL(claim(segment), 0);
    pid_t holder = start_child(hold_and_stop, name);
    wait_until_stopped(holder);
    CHECK_EQUAL(sigaction(SIGALRM, &action, NULL), 0);
    CHECK_EQUAL(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t begun = sys_clock_ns();
        CHECK_EQUAL(publish(segment, 0, 1, 0, 1), PIX_BUSY);
        CHECK(sys_clock_ns() - begun >= PIX_WAIT_MS * SYS_NS_PER_MS);
    }
    (void)alarm(PATIENCE_S);
    kill_child(holder);
    pix_close(segment);
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

static void *publish_in_a_thread(void *segment)
{
    return publish(segment, 0, 5, 0, 1) == PIX_OK ? segment : NULL;
}

/* One that sleeps for the lock is posted for, where there is a semaphore, and gets it anyway. */
static void check_waiting(const char *name, unsigned posts)
{
    pix_segment *segment = create_segment(name);
    pthread_t waiter;
    void *succeeded;
    CHECK_EQUAL(claim(segment), 0);
    pid_t holder = start_child(hold_and_wait, name);
    wait_until_shared(READY, 1);
    CHECK_EQUAL(pthread_create(&waiter, NULL, publish_in_a_thread, segment), 0);
    while (segment->map->waiting[0] != 1)
        (void)usleep(10);
    shared[GO] = 2;
    CHECK_EQUAL(pthread_join(waiter, &succeeded), 0);
    CHECK(succeeded == segment);
    expect_success(holder);
    CHECK(posts == 0 ? shared[POSTS] == 0 : shared[POSTS] >= posts);
    CHECK_EQUAL(publish(segment, 0, 0, 0, 1), PIX_OK);
    pix_close(segment);
}

TEST(a_waiter_is_posted_for)
{
    const char *name = new_name();
    create_semaphore(name);
    check_waiting(name, 1);
}

TEST(nobody_posts_while_nobody_waits)
{
    const char *name = new_name();
    create_semaphore(name);
    pix_segment *segment = create_segment(name);
    CHECK(segment->semaphore != NULL);
    CHECK_EQUAL(claim(segment), 0);
    for (unsigned i = 0; i < 100; i++)
        CHECK_EQUAL(publish(segment, 0, i, 0, 1), PIX_OK);
    CHECK_EQUAL(shared[POSTS], 0);
    pix_close(segment);
}

/* However many let go of the lock before a sleeper wakes: one post wakes it. */
TEST(posts_do_not_pile_up)
{
    const char *name = new_name();
    create_semaphore(name);
    pix_segment *segment = create_segment(name);
    int value;
    CHECK_EQUAL(claim(segment), 0);
    CHECK_EQUAL(publish(segment, 0, 1, 0, 1), PIX_OK);
    segment->map->waiting[1] = 1;
    for (unsigned i = 0; i < 100; i++)
        CHECK_EQUAL(publish(segment, 0, i, 0, 1), PIX_OK);
    CHECK(shared[POSTS] > 0);
    CHECK_EQUAL(sem_getvalue(segment->semaphore, &value), 0);
    CHECK_EQUAL(value, 1);
    pix_close(segment);
}

static void die_asleep(const void *name)
{
    pix_segment *segment = join_segment(name);
    before_sleep = die;
    (void)claim(segment);
}

/* It has no slot that is used: it died while it waited to claim one. */
TEST(a_waiter_that_dies_leaves_no_mark)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    pid_t holder = start_child(hold_and_stop, name);
    wait_until_stopped(holder);
    reap_killed(start_child(die_asleep, name));
    CHECK_EQUAL(segment->map->waiting[0], 1 << 2);
    CHECK_EQUAL(segment->map->used[0], 3);
    kill_child(holder);
    CHECK_EQUAL(publish(segment, 0, 5, 0, 1), PIX_OK);
    check_recovered(segment, 5, 1);
    pix_close(segment);
}

TEST(without_a_semaphore_waiters_sleep_by_the_clock)
{
    check_waiting(new_name(), 0);
}

static void plant_semaphore(const char *name, unsigned size, unsigned mode)
{
    static const char bytes[4096];
    int descriptor = open(semaphore_path(name), O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(descriptor >= 0);
    CHECK_EQUAL(write(descriptor, bytes, size), size);
    CHECK_EQUAL(fchmod(descriptor, mode), 0);
    CHECK_EQUAL(close(descriptor), 0);
}

TEST(an_empty_semaphore_is_refused)
{
    const char *name = new_name();
    plant_semaphore(name, 0, 0600);
    check_waiting(name, 0);
}

TEST(an_empty_semaphore_of_somebody_else_is_refused)
{
    if (geteuid() != 0)
        skip("only root can give a file away");
    const char *name = new_name();
    plant_semaphore(name, 0, 0600);
    CHECK_EQUAL(chown(semaphore_path(name), 12345, 12345), 0);
    check_waiting(name, 0);
}

TEST(a_semaphore_of_somebody_else_is_refused)
{
    if (geteuid() != 0)
        skip("only root can give a file away");
    const char *name = new_name();
    create_semaphore(name); /* a good one, but for its owner */
    CHECK_EQUAL(chown(semaphore_path(name), 12345, 12345), 0);
    check_waiting(name, 0);
}

TEST(a_semaphore_that_others_may_use_is_refused)
{
    const char *name = new_name();
    create_semaphore(name);
    CHECK_EQUAL(chmod(semaphore_path(name), 0666), 0);
    check_waiting(name, 0);
}

TEST(a_semaphore_of_a_wrong_size_is_refused)
{
    const char *name = new_name();
    plant_semaphore(name, sizeof(sem_t) - 1, 0600);
    check_waiting(name, 0);
}

TEST(a_linked_semaphore_is_refused)
{
    const char *name = new_name();
    CHECK_EQUAL(symlink("/dev/null", semaphore_path(name)), 0);
    check_waiting(name, 0);
}

TEST(a_directory_for_a_semaphore_is_refused)
{
    const char *name = new_name();
    CHECK_EQUAL(mkdir(semaphore_path(name), 0700), 0);
    check_waiting(name, 0);
}

TEST(a_semaphore_full_of_garbage_is_endured)
{
    static const unsigned char fillings[] = {0xff, 0x7f, 0xa5, 0x01};
    const char *name = new_name();
    create_semaphore(name);
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    pid_t holder = start_child(hold_and_stop, name);
    wait_until_stopped(holder);
    for (unsigned i = 0; i < sizeof fillings; i++) {
        memset(segment->semaphore, fillings[i], sizeof(sem_t));
        CHECK_EQUAL(publish(segment, 0, 1, 0, 1), PIX_BUSY);
    }
    kill_child(holder);
    CHECK_EQUAL(publish(segment, 0, 1, 0, 1), PIX_OK);
    pix_close(segment);
}

/* ---- damage -----------------------------------------------------------------------------------
 */

TEST(a_damaged_lock_word_is_recovered)
{
    static const uint64_t words[] = {
        UINT64_MAX,
        0x10000, /* no slot */
        PIX_SLOTS + 1,
        0xffff, /* beyond the last */
        1,
        UINT64_C(77) << 16 | 1, /* the taker's own, of another generation */
        UINT64_C(1) << 16 | 2,
        UINT64_C(5) << 16 | 900,
        UINT64_C(0x6d68735f786970ff),
    };
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(claim(segment), 0);
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        segment->map->lock = words[i];
        CHECK_EQUAL(publish(segment, 0, 4, 0, 1), PIX_OK);
        check_recovered(segment, 4, 1);
    }
    segment->map->lock = segment->generation[0] << 16 | 1; /* the taker's own name */
    CHECK_EQUAL(publish(segment, 0, 4, 0, 1), PIX_OK);
    check_recovered(segment, 4, 1);
    pix_close(segment);
}

/* ---- a full table -----------------------------------------------------------------------------
 */

static void claim_with_others_busy(const void *name)
{
    pix_segment *segment = join_segment(name);
    before_take = stop_here; /* with the last slot's byte in its hands */
    CHECK_EQUAL(claim(segment), PIX_AGENTS - 1);
    before_take = NULL;
    shared[DONE] = 1;
    sleep_for_ever();
}

static pid_t claiming;

static void let_the_other_tidy_up(void)
{
    after_refusal = NULL;
    CHECK_EQUAL(kill(claiming, SIGCONT), 0);
    wait_until_shared(DONE, 1);
}

static void fill_all_but_the_last(const void *name)
{
    pix_segment *segment = join_segment(name);
    for (int slot = 0; slot < PIX_AGENTS - 1; slot++)
        CHECK_EQUAL(claim(segment), slot);
    die();
}

/* Between our look for slots that nobody used and our look for those of the dead, another frees
 * all of the dead's. */
TEST(a_table_that_another_tidies_up_is_not_full)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    reap_killed(start_child(fill_all_but_the_last, name));
    claiming = start_child(claim_with_others_busy, name);
    wait_until_stopped(claiming);
    after_refusal = let_the_other_tidy_up;
    CHECK_EQUAL(claim(segment), 0);
    CHECK(after_refusal == NULL);
    kill_child(claiming);
    pix_close(segment);
}
