/* fork.c: the process mutex, the list of open handles, and what happens to both when a child is
 * made.
 *
 * A forked child inherits the open file description, and with it the locks on the slots' bytes:
 * they would keep a dead parent alive for as long as the child runs. So no descriptor exists
 * outside the list, the list changes under the mutex only, and the child closes all of them before
 * it runs. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

static pthread_mutex_t process_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct pix_segment *handles;

static void before_fork(void)
{
    process_lock_always();
}

static void after_fork_in_parent(void)
{
    process_unlock();
}

static void after_fork_in_child(void)
{
    for (struct pix_segment *segment = handles; segment != NULL; segment = segment->next)
        segment_leave(segment);
    process_unlock(); /* ours: before_fork took it in the thread that this process consists of */
}

/* Before any handle can exist, so also before any descriptor that needs it. The only failure is
 * lack of memory while the module loads; a core that cannot keep its promise must not run. */
__attribute__((constructor)) static void install_fork_handlers(void)
{
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
        __builtin_trap();
}

int process_lock(uint64_t *deadline_ns)
{
    if (pthread_mutex_trylock(&process_mutex) == 0)
        return PIX_OK;
    uint64_t deadline = deadline_of(deadline_ns);
    struct timespec until = {.tv_sec = (time_t)(deadline / UINT64_C(1000000000)),
                             .tv_nsec = (long)(deadline % UINT64_C(1000000000))};
    return pthread_mutex_clocklock(&process_mutex, CLOCK_MONOTONIC, &until) == 0 ? PIX_OK
                                                                                 : PIX_BUSY;
}

void process_lock_always(void)
{
    (void)pthread_mutex_lock(&process_mutex); /* a plain mutex: cannot fail */
}

void process_unlock(void)
{
    (void)pthread_mutex_unlock(&process_mutex);
}

void process_register(struct pix_segment *segment)
{
    segment->next = handles;
    handles = segment;
}

void process_forget(struct pix_segment *segment)
{
    struct pix_segment **link = &handles;
    while (*link != NULL && *link != segment)
        link = &(*link)->next;
    if (*link == segment)
        *link = segment->next;
}
