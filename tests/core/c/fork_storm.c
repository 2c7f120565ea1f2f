/* fork_storm.c: a process forks while another of its threads opens, claims and closes, and is then
 * killed. Its children live on, and must keep none of its slots alive.
 *
 * With -DBREAK_NO_HANDLERS and --wrap=pthread_atfork no fork handler is installed, with
 * -DBREAK_CHILD_ONLY only the child's: forks then also fall between the making of a descriptor and
 * its being known. Both must fail. */
#define _GNU_SOURCE
#include "testing.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FORKED,   /* children made, over all rounds */
    SLEEPING, /* children that have arrived where they sleep */
    CLAIMED,  /* claims that succeeded */
    WRONG     /* something that the parent's thread did not expect */
};

enum { ROUNDS = 8, FORKS = 40 };

#if defined(BREAK_NO_HANDLERS) || defined(BREAK_CHILD_ONLY)
int __real_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    (void)prepare;
    (void)parent;
#ifdef BREAK_CHILD_ONLY
    return __real_pthread_atfork(NULL, NULL, child);
#else
    (void)child;
    return 0;
#endif
}
#endif

static const char *stormed;

/* One handle stays open with a slot claimed, as an agent's does; another comes and goes. */
static void *open_and_close(void *unused)
{
    pix_segment *lasting = join_segment(stormed);
    if (claim(lasting) < 0)
        shared[WRONG]++;
    for (;;) {
        pix_segment *segment;
        int result = pix_open(stormed, 0, PIX_JOIN, &segment);
        if (result != PIX_OK) {
            shared[WRONG]++;
            continue;
        }
        int slot = claim(segment);
        if (slot >= 0 && publish(segment, slot, 1, 1, 1) == PIX_OK)
            shared[CLAIMED]++;
        else
            shared[WRONG]++;
        pix_close(segment);
    }
    return unused;
}

static void sleep_as_a_child(void)
{
    (void)alarm(PATIENCE_S); /* should nobody end it */
    shared[SLEEPING]++;
    sleep_for_ever();
}

static void storm(const void *unused)
{
    (void)unused;
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, open_and_close, NULL), 0);
    for (;;) {
        if (shared[CLAIMED] == 0)
            continue;
        pid_t child = fork();
        if (child == 0)
            sleep_as_a_child();
        CHECK(child > 0);
        shared[FORKED]++;
        (void)usleep((useconds_t)(shared[CLAIMED] % 300));
    }
}

static void check_all_free(pix_segment *segment, unsigned round)
{
    unsigned taken = 0;
    for (unsigned slot = 0; slot < PIX_SLOTS; slot++)
        taken += sys_byte_probe(segment->descriptor, slot) != SYS_BYTE_FREE;
    if (taken != 0)
        fprintf(stderr, "round %u: %u slots of a dead process are taken\n", round, taken);
    CHECK_EQUAL(taken, 0);
    CHECK_EQUAL(slots_alive(segment), 0);
    int slot = claim(segment);
    CHECK(slot >= 0);
    CHECK_EQUAL(publish(segment, slot, 2, 0, 1), PIX_OK);
    CHECK_EQUAL(summary_of(segment) & UINT32_MAX, 2);
    pix_release(segment, slot);
}

/* The children of the dead are ours, as we are their subreaper. Returns how many there are, and
 * with `signal_number` other than 0 sends them that, one by one. */
static unsigned orphans(int signal_number)
{
    char path[64];
    int child;
    unsigned count = 0;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *list = fopen(path, "r");
    CHECK(list != NULL);
    for (; fscanf(list, "%d", &child) == 1; count++)
        if (signal_number != 0)
            (void)kill(child, signal_number);
    CHECK_EQUAL(fclose(list), 0);
    return count;
}

static void end_orphans(void)
{
    (void)orphans(SIGKILL);
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

/* The kill comes while both threads are at work: perhaps amid a fork, or inside the core. */
static void one_round(pix_segment *segment, unsigned round)
{
    uint64_t enough = shared[FORKED] + FORKS;
    shared[CLAIMED] = 0;
    pid_t stormer = start_child(storm, NULL);
    wait_until_shared(FORKED, enough);
    kill_child(stormer);
    while (shared[SLEEPING] < orphans(0))
        (void)usleep(1000); /* until each child is past its fork handlers */
    check_all_free(segment, round);
    CHECK_EQUAL(shared[WRONG], 0);
}

TEST(storm)
{
    stormed = new_name();
    pix_segment *segment = create_segment(stormed);
    CHECK_EQUAL(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    CHECK_EQUAL(atexit(end_orphans), 0); /* also where a check fails */
    for (unsigned round = 0; round < ROUNDS; round++)
        one_round(segment, round);
    printf("%u rounds, %u children, all living\n", ROUNDS, orphans(0));
    CHECK_EQUAL(orphans(0), shared[SLEEPING]);
    pix_close(segment);
}
