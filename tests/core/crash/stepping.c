/* stepping.c: see crash.h.
 *
 * Two ways to see every state that an operation passes through. The plain one is to single-step a
 * child under ptrace, and to compare the memory after each instruction. It costs thousands of
 * steps, of 10 to 40 us each, for an operation that changes memory some fifty times. So recoveries,
 * of which there are very many, are watched by their stores: the memory is write-protected, and
 * each instruction that is about to change it is let through alone. The operations themselves are
 * watched both ways, and the states must be the same. */
#define _GNU_SOURCE
#include "crash.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

struct trace *trace;
uint64_t stores;

void *__real_sys_map(int descriptor, size_t size);
void __real_sys_unmap(void *memory, size_t size);
int __real_sys_allocate(int descriptor, size_t size);
int __real_sys_shm_unlink(const char *name);
void *__wrap_sys_map(int descriptor, size_t size);
void __wrap_sys_unmap(void *memory, size_t size);
int __wrap_sys_allocate(int descriptor, size_t size);
int __wrap_sys_shm_unlink(const char *name);

static const struct pix_layout *traced;

void trace_begin(const struct pix_layout *map)
{
    if (trace == NULL) {
        trace = mmap(NULL, sizeof *trace, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(trace != MAP_FAILED);
    }
    traced = map;
    trace->count = 1;
    image_take(&trace->image[0], map);
}

void trace_note(void)
{
    if (image_is(&trace->image[trace->count - 1], traced))
        return;
    CHECK(trace->count < CHANGES_MAX);
    image_take(&trace->image[trace->count++], traced);
}

/* ---- by stores ------------------------------------------------------------------------------- */

#define PAGE 4096

static void (*watcher)(void);
static char *protected; /* PIX_SIZE bytes of the actor's, or NULL */
static char *opened[2]; /* pages that the present instruction may write to */
static unsigned open_count;

#if defined(__x86_64__)
static void one_step(void *context, bool on)
{
    greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
    *flags = on ? *flags | 0x100 : *flags & ~0x100;
}
#else
#error "the trap flag of this processor is not known here"
#endif

/* An instruction is about to write: let it, and stop after it. */
static void on_store(int number, siginfo_t *info, void *context)
{
    char *address = info->si_addr;
    if (protected == NULL || address < protected || address >= protected + PIX_SIZE ||
        open_count == 2) {
        (void)signal(number, SIG_DFL); /* no store that we wait for: it comes again, and is fatal */
        return;
    }
    char *page = (char *)((uintptr_t)address & ~(uintptr_t)(PAGE - 1));
    opened[open_count++] = page; /* a second one, if it writes across their border */
    (void)mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    one_step(context, true);
}

static void after_store(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    stores++;
    watcher();
    while (open_count > 0)
        (void)mprotect(opened[--open_count], PAGE, PROT_READ);
    one_step(context, false);
}

static void watch(void *memory)
{
    protected = memory;
    CHECK_EQUAL(mprotect(memory, PIX_SIZE, PROT_READ), 0);
}

void stores_watch(void *memory, void (*note)(void))
{
    static bool installed;
    if (!installed) {
        struct sigaction action = {.sa_flags = SA_SIGINFO};
        action.sa_sigaction = on_store;
        CHECK_EQUAL(sigaction(SIGSEGV, &action, NULL), 0);
        action.sa_sigaction = after_store;
        CHECK_EQUAL(sigaction(SIGTRAP, &action, NULL), 0);
        installed = true;
    }
    watcher = note;
    if (memory != NULL)
        watch(memory);
}

void stores_unwatch(void)
{
    if (protected != NULL)
        CHECK_EQUAL(mprotect(protected, PIX_SIZE, PROT_READ | PROT_WRITE), 0);
    protected = NULL;
    watcher = NULL;
}

void *__wrap_sys_map(int descriptor, size_t size)
{
    void *memory = __real_sys_map(descriptor, size);
    if (watcher != NULL && memory != NULL)
        watch(memory);
    return memory;
}

int __wrap_sys_allocate(int descriptor, size_t size)
{
    int result = __real_sys_allocate(descriptor, size);
    if (watcher != NULL)
        watcher();
    return result;
}

int __wrap_sys_shm_unlink(const char *name)
{
    int result = __real_sys_shm_unlink(name);
    if (watcher != NULL)
        watcher();
    return result;
}

void __wrap_sys_unmap(void *memory, size_t size)
{
    if (memory == protected)
        protected = NULL;
    __real_sys_unmap(memory, size);
}

/* ---- by instructions ------------------------------------------------------------------------- */

uint64_t step_child(pid_t child, void (*note)(void))
{
    int status;
    uint64_t steps = 0;
    do {
        CHECK_EQUAL(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK(WIFSTOPPED(status));
        steps++;
        note();
    } while (WSTOPSIG(status) != SIGSTOP);
    kill_child(child);
    return steps;
}
