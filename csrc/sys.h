/* sys.h: the system calls of the core, each behind a wrapper of its own.
 *
 * The place for fault injection in tests, and the list to go through for a port. A wrapper decides
 * nothing: it retries what was merely interrupted, and otherwise returns what the system said.
 */
#ifndef PIX_SYS_H
#define PIX_SYS_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define SYS_NS_PER_MS UINT64_C(1000000)

int sys_shm_open(const char *name);                      /* descriptor, or -1 and errno */
int sys_shm_stat(const char *name, struct stat *status); /* of the name, links not followed */
int sys_shm_unlink(const char *name);                    /* 0, or -1 and errno */
int sys_fstat(int descriptor, struct stat *status);      /* 0, or -1 and errno */
int sys_allocate(int descriptor, size_t size);           /* 0, or -1 and errno */
void *sys_map(int descriptor, size_t size);              /* shared, or NULL and errno */
void sys_unmap(void *memory, size_t size);
void sys_close(int descriptor);
uint64_t sys_user(void); /* effective user id */

enum sys_byte { SYS_BYTE_FREE, SYS_BYTE_EXCLUSIVE, SYS_BYTE_SHARED, SYS_BYTE_UNKNOWN };

/* Lock one byte of the open file description exclusively, without waiting: 0, or -1 and errno
 * (EAGAIN: taken). */
int sys_byte_lock(int descriptor, int64_t byte);
/* Make the exclusive lock of a byte a shared one, in one step: 0, or -1 and errno. */
int sys_byte_share(int descriptor, int64_t byte);
void sys_byte_unlock(int descriptor, int64_t byte);
/* How does another open file description hold the byte? */
enum sys_byte sys_byte_probe(int descriptor, int64_t byte);

sem_t *sys_sem_open(const char *name); /* an existing, trustworthy one, or NULL */
void sys_sem_close(sem_t *semaphore);
void sys_sem_post_if_zero(sem_t *semaphore);
void sys_sem_wait_until(sem_t *semaphore, uint64_t deadline_ns); /* may return early */

/* Sleep while the word is `expected`, at most timeout_ns; may return early. */
void sys_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void sys_futex_wake_all(_Atomic uint32_t *word);

uint64_t sys_clock_ns(void); /* monotonic */
uint64_t
sys_clock_coarse_ns(void); /* the same clock, a few milliseconds behind, five times as fast */
uint64_t sys_wall_ms(void);
void sys_sleep_until(uint64_t deadline_ns);

#endif
