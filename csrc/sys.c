/* sys.c: the only place from which the core calls the system. See sys.h. */
#define _GNU_SOURCE
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHM_DIRECTORY "/dev/shm"

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    /* cannot fail for the clocks below: they exist on every Linux, and the pointer is ours */
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                             .tv_nsec = (long)(ns % UINT64_C(1000000000))};
}

int sys_shm_open(const char *name)
{
    int descriptor;
    do {
        /* shm_open adds O_NOFOLLOW and O_CLOEXEC: a link is ELOOP, and no child keeps the bytes.
         * O_NONBLOCK: a file of that name on which somebody has a lease (F_SETLEASE) is EAGAIN, and
         * not a wait of 45 seconds. */
        descriptor = shm_open(name, O_RDWR | O_NONBLOCK, 0);
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

static int shm_path(char *path, size_t size, const char *prefix, const char *name)
{
    int length = snprintf(path, size, SHM_DIRECTORY "/%s%s", prefix, name + 1);
    if (length < 0 || (size_t)length >= size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return 0;
}

int sys_shm_stat(const char *name, struct stat *status)
{
    char path[NAME_MAX];
    if (shm_path(path, sizeof path, "", name) < 0)
        return -1;
    return lstat(path, status);
}

int sys_shm_unlink(const char *name)
{
    return shm_unlink(name);
}

int sys_fstat(int descriptor, struct stat *status)
{
    return fstat(descriptor, status);
}

int sys_allocate(int descriptor, size_t size)
{
    int error;
    /* Not ftruncate: on a full tmpfs that succeeds, and the first store into a page dies of SIGBUS.
     */
    do {
        error = posix_fallocate(descriptor, 0, (off_t)size);
    } while (error == EINTR);
    if (error != 0) {
        errno = error;
        return -1;
    }
    return 0;
}

void *sys_map(int descriptor, size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void sys_unmap(void *memory, size_t size)
{
    (void)munmap(memory, size); /* fails only for arguments that sys_map did not return */
}

void sys_close(int descriptor)
{
    (void)close(descriptor); /* on Linux the descriptor is gone whatever this returns */
}

uint64_t sys_user(void)
{
    return (uint64_t)geteuid();
}

static struct flock byte_of(int64_t byte, short type)
{
    struct flock range;
    memset(&range, 0, sizeof range); /* l_pid must be 0 for locks of an open file description */
    range.l_type = type;
    range.l_whence = SEEK_SET;
    range.l_start = byte;
    range.l_len = 1;
    return range;
}

int sys_byte_lock(int descriptor, int64_t byte)
{
    struct flock range = byte_of(byte, F_WRLCK);
    int result;
    do {
        result = fcntl(descriptor, F_OFD_SETLK, &range);
    } while (result < 0 && errno == EINTR);
    return result;
}

void sys_byte_unlock(int descriptor, int64_t byte)
{
    struct flock range = byte_of(byte, F_UNLCK);
    /* Unlocking one byte may split a range and need memory (ENOLCK); the byte then stays ours until
     * the descriptor is closed, and the slot is lost to others for that long. */
    (void)fcntl(descriptor, F_OFD_SETLK, &range);
}

enum sys_byte sys_byte_probe(int descriptor, int64_t byte)
{
    struct flock range = byte_of(byte, F_WRLCK);
    if (fcntl(descriptor, F_OFD_GETLK, &range) < 0)
        return SYS_BYTE_UNKNOWN;
    return range.l_type == F_UNLCK ? SYS_BYTE_FREE : SYS_BYTE_TAKEN;
}

/* Is the mark of being shared between processes that of a good semaphore? It goes into a system
 * call, and glibc ends the process if the kernel does not take it: anything else there is damage.
 * In 64-bit libraries it follows the two counters, of which any value will do. */
static bool is_sound(const sem_t *semaphore)
{
    enum { MARK = 8 };
    sem_t good;
    (void)sem_init(&good, 1, 0); /* cannot fail for that value */
    return memcmp((const char *)semaphore + MARK, (const char *)&good + MARK, sizeof(int)) == 0;
}

sem_t *sys_sem_open(const char *name)
{
    char path[NAME_MAX];
    struct stat status;
    if (shm_path(path, sizeof path, "sem.", name) < 0 || lstat(path, &status) < 0)
        return NULL;
    /* glibc maps whatever lies under the name: an empty file of somebody else's would kill us with
     * SIGBUS at the first touch. A file of our own in a sticky directory is replaced by nobody else
     * between this look and the opening. */
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 0077) != 0 ||
        status.st_size < (off_t)sizeof(sem_t))
        return NULL;
    sem_t *semaphore = sem_open(name, 0);
    if (semaphore == SEM_FAILED)
        return NULL;
    if (!is_sound(semaphore)) {
        sys_sem_close(semaphore);
        return NULL;
    }
    return semaphore;
}

void sys_sem_close(sem_t *semaphore)
{
    (void)sem_close(semaphore); /* fails only for what sem_open did not return */
}

void sys_sem_post_if_zero(sem_t *semaphore)
{
    int value;
    if (is_sound(semaphore) && sem_getvalue(semaphore, &value) == 0 && value == 0)
        (void)sem_post(semaphore); /* EOVERFLOW cannot be: it was 0 */
}

void sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns)
{
    struct timespec deadline = timespec_of(deadline_ns);
    if (!is_sound(semaphore)) {
        sys_sleep_until(deadline_ns);
        return;
    }
    /* Woken, timed out or interrupted: the caller looks at the lock word in each case. */
    (void)sem_clockwait(semaphore, CLOCK_MONOTONIC, &deadline);
}

void sys_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    struct timespec timeout = timespec_of(timeout_ns);
    /* Not the private kind: the word is shared. Woken, timed out, interrupted, or the word is
     * another: the caller looks in each case. */
    (void)syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, NULL, 0);
}

void sys_futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); /* nothing can fail */
}

uint64_t sys_clock_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t sys_clock_coarse_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

uint64_t sys_wall_ms(void)
{
    return clock_ns(CLOCK_REALTIME) / SYS_NS_PER_MS;
}

void sys_sleep_until(uint64_t deadline_ns)
{
    struct timespec deadline = timespec_of(deadline_ns);
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL); /* early is fine */
}
