/* segment.c: a segment's beginning and end: open, verify, initialise, notice that it was removed.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int verify_file(const struct stat *status)
{
    if (!S_ISREG(status->st_mode) || status->st_uid != sys_user() ||
        (status->st_mode & 07777) != 0600)
        return PIX_FOREIGN;
    if (status->st_size == 0)
        return PIX_OK; /* its creator died early, or is about to go on */
    if (status->st_size < PIX_SIZE || status->st_size % 4096 != 0)
        return PIX_MALFORMED; /* larger is fine: a system may round up; only our part is mapped */
    return PIX_OK;
}

static int verify_content(const struct pix_layout *map)
{
    /* acquire: pairs with the last store of initialise(); the rest of the header is there */
    uint32_t layout = atomic_load_explicit(&map->layout, memory_order_acquire);
    if (layout == 0)
        return PIX_STARTING;
    return layout == PIX_LAYOUT && map->magic == PIX_MAGIC && map->slots == PIX_SLOTS
               ? PIX_OK
               : PIX_MALFORMED;
}

static void initialise(struct pix_layout *map, uint64_t known_revision)
{
    uint64_t revision = sys_wall_ms();
    if (revision <= known_revision)
        revision = known_revision + 1;
    memset((char *)map, 0, PIX_SIZE); /* whatever an initialiser before us left */
    map->magic = PIX_MAGIC;
    map->slots = PIX_SLOTS;
    atomic_store_explicit(&map->revision, revision, memory_order_relaxed);
    /* Not the epoch of the segment before: a reader that moves here must not take one for the
     * other. */
    atomic_store_explicit(&map->summary,
                          lease_word(&(struct lease_sum){0}, revision << PIX_SUMMARY_EPOCH),
                          memory_order_relaxed);
    /* release, and last: whoever finds the layout number finds everything above. Dying before it
     * leaves a segment that the next opener begins again. */
    atomic_store_explicit(&map->layout, PIX_LAYOUT, memory_order_release);
}

static bool is_linked(int descriptor)
{
    struct stat status;
    return sys_fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

/* Give an empty or unfinished segment its size and content, unless another process is at it. The
 * start byte decides who, and is free again once that process is done or dead. */
static int start(struct pix_segment *segment, uint64_t known_revision, bool created)
{
    int descriptor = segment->descriptor;
    if (sys_byte_lock(descriptor, PIX_START_BYTE) < 0)
        return errno == EAGAIN || errno == EACCES ? PIX_STARTING : PIX_SYSTEM;
    struct stat status;
    int result = PIX_OK;
    if (!is_linked(descriptor)) {
        result = PIX_ABSENT; /* whoever was here before us gave up and removed it */
    } else if (sys_fstat(descriptor, &status) < 0 ||
               (status.st_size == 0 && sys_allocate(descriptor, PIX_SIZE) < 0) ||
               (segment->map == NULL && (segment->map = sys_map(descriptor, PIX_SIZE)) == NULL)) {
        int error = errno;
        /* Nobody else can have begun to use it: we hold the start byte, and it is not started. */
        if (created)
            (void)sys_shm_unlink(segment->name);
        errno = error;
        result = PIX_SYSTEM;
    } else {
        result = verify_content(segment->map); /* somebody may have been quicker */
        if (result == PIX_STARTING) {
            initialise(segment->map, known_revision);
            result = PIX_OK;
        }
    }
    sys_byte_unlock(descriptor, PIX_START_BYTE);
    return result;
}

static int open_and_verify(struct pix_segment *segment, uint64_t known_revision, bool created)
{
    segment->descriptor = sys_shm_open(segment->name);
    if (segment->descriptor < 0) {
        if (errno == ENOENT)
            return PIX_ABSENT;
        return errno == ELOOP || errno == EISDIR ? PIX_FOREIGN : PIX_SYSTEM;
    }
    struct stat status;
    if (sys_fstat(segment->descriptor, &status) < 0)
        return PIX_SYSTEM;
    int result = verify_file(&status);
    if (result != PIX_OK)
        return result;
    segment->device = status.st_dev;
    segment->inode = status.st_ino;
    if (status.st_size != 0) {
        segment->map = sys_map(segment->descriptor, PIX_SIZE);
        if (segment->map == NULL)
            return PIX_SYSTEM;
        result = verify_content(segment->map);
    }
    if (status.st_size == 0 || result == PIX_STARTING)
        result = start(segment, known_revision, created);
    if (result == PIX_OK && !is_linked(segment->descriptor))
        result = PIX_ABSENT; /* removed while we looked */
    return result;
}

static void leave(struct pix_segment *segment)
{
    if (segment->descriptor >= 0)
        sys_close(segment->descriptor);
    segment->descriptor = -1;
    memset(segment->own, 0, sizeof segment->own);
}

static void dispose(struct pix_segment *segment)
{
    leave(segment);
    if (segment->map != NULL)
        sys_unmap(segment->map, PIX_SIZE);
    if (segment->semaphore != NULL)
        sys_sem_close(segment->semaphore);
    free(segment);
}

int pix_open(const char *name, uint64_t known_revision, int created, pix_segment **opened)
{
    size_t length = strlen(name);
    struct pix_segment *segment;
    if (length < 2 || length >= PIX_NAME_BYTES || name[0] != '/' || strchr(name + 1, '/') != NULL) {
        errno = EINVAL;
        return PIX_SYSTEM;
    }
    segment = calloc(1, sizeof *segment);
    if (segment == NULL)
        return PIX_SYSTEM;
    memcpy(segment->name, name, length);
    /* The descriptor is made, and its handle listed, without a fork in between: see fork.c. */
    process_lock_always();
    int result = open_and_verify(segment, known_revision, created != 0);
    if (result == PIX_OK) {
        segment->semaphore = sys_sem_open(segment->name);
        process_register(segment);
        *opened = segment;
    } else {
        int error = errno;
        dispose(segment);
        errno = error;
    }
    process_unlock();
    return result;
}

void pix_leave(pix_segment *segment)
{
    process_lock_always();
    leave(segment);
    process_unlock();
}

void pix_close(pix_segment *segment)
{
    process_lock_always();
    process_forget(segment);
    dispose(segment);
    process_unlock();
}

const void *pix_memory(pix_segment *segment)
{
    return segment->map;
}

/* Is this the segment that new processes find? Looking by name also notices one that was moved
 * away. */
bool segment_is_current(struct pix_segment *segment, bool by_name)
{
    struct stat status;
    if (!is_linked(segment->descriptor))
        return false;
    if (!by_name)
        return true;
    if (sys_shm_stat(segment->name, &status) < 0)
        return errno != ENOENT; /* a name that cannot be looked at says nothing */
    return status.st_dev == segment->device && status.st_ino == segment->inode;
}

int segment_check(struct pix_segment *segment, bool by_name)
{
    if (segment->descriptor < 0)
        return PIX_STALE;
    if (segment_is_current(segment, by_name))
        return PIX_OK;
    /* For good, so that whoever still reads here learns it at the next read and not at its next
     * look. release: a reader that sees the mark goes to the new segment, where our leases will be.
     */
    atomic_fetch_or_explicit(&segment->map->summary, PIX_RETIRED_MASK, memory_order_release);
    atomic_fetch_or_explicit(&segment->map->revision, PIX_RETIRED_MASK, memory_order_release);
    return PIX_RETIRED;
}
