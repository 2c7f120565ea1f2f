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
    known_revision = revision_believed(known_revision);
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

/* Is the descriptor still that of the segment? A host that becomes a daemon closes every descriptor
 * it does not know, and the number then belongs to some other file: whose bytes say nothing about
 * who lives, and which is not ours to close. */
static bool is_ours(const struct pix_segment *segment, struct stat *status)
{
    return segment->descriptor >= 0 && sys_fstat(segment->descriptor, status) == 0 &&
           status->st_dev == segment->device && status->st_ino == segment->inode;
}

/* Does the name still lead to this segment? A name that cannot be looked at says nothing against
 * it. */
static bool has_name(const struct pix_segment *segment)
{
    struct stat status;
    if (sys_shm_stat(segment->name, &status) < 0)
        return errno != ENOENT;
    return status.st_dev == segment->device && status.st_ino == segment->inode;
}

/* Is there memory behind every page that we touch? Touching a hole takes a page, and where there is
 * none is a SIGBUS, for readers as well. */
static bool has_memory(const struct stat *status)
{
    return status->st_size != 0 && status->st_blocks * 512 >= PIX_SIZE;
}

/* Map the segment, through an open file description of its own. A mapping keeps its description
 * alive, and with it the locks taken through it: through the same one, a forked child would hold
 * its parent's bytes by the inherited mapping, long after the parent died and whatever it closed.
 */
static int map_memory(struct pix_segment *segment)
{
    int descriptor = sys_shm_open(segment->name);
    if (descriptor < 0)
        return errno == ENOENT ? PIX_ABSENT : PIX_SYSTEM;
    struct stat status;
    int result = PIX_OK;
    if (sys_fstat(descriptor, &status) < 0)
        result = PIX_SYSTEM;
    else if (status.st_dev != segment->device || status.st_ino != segment->inode)
        result = PIX_ABSENT; /* replaced since we opened it */
    else if ((segment->map = sys_map(descriptor, PIX_SIZE)) == NULL)
        result = PIX_SYSTEM;
    int error = errno;
    sys_close(descriptor);
    errno = error;
    return result;
}

/* Give an unfinished segment its size and content. The caller holds the start byte. */
static int finish(struct pix_segment *segment, const struct stat *status, uint64_t known_revision)
{
    /* Fills holes too, and never changes a size that is large enough. */
    if (!has_memory(status) && sys_allocate(segment->descriptor, PIX_SIZE) < 0)
        return PIX_SYSTEM;
    int result = segment->map == NULL ? map_memory(segment) : PIX_OK;
    if (result != PIX_OK)
        return result;
    result = verify_content(segment->map);
    if (result == PIX_STARTING) { /* nobody was quicker */
        initialise(segment->map, known_revision);
        result = PIX_OK;
    }
    return result;
}

static bool is_retired(const struct pix_layout *map)
{
    return ((atomic_load_explicit(&map->summary, memory_order_relaxed) |
             atomic_load_explicit(&map->revision, memory_order_relaxed)) &
            PIX_RETIRED_MASK) != 0;
}

/* What wants the start byte: to finish a segment that was begun, or to remove the name of one that
 * is retired. Whoever does either holds the byte of that very file, and looks first whether it
 * still has the name: so each is done once, and to no other segment. */
static int settle(struct pix_segment *segment, uint64_t known_revision, bool made)
{
    struct stat status;
    if (sys_byte_lock(segment->descriptor, PIX_START_BYTE) < 0)
        return errno == EAGAIN || errno == EACCES ? PIX_STARTING : PIX_SYSTEM;
    int result;
    if (!has_name(segment) || !is_ours(segment, &status)) {
        result = PIX_ABSENT; /* whoever was here before us removed it */
    } else if (segment->map != NULL && verify_content(segment->map) == PIX_OK) {
        result = is_retired(segment->map) ? PIX_ABSENT : PIX_OK;
        if (result == PIX_ABSENT)
            (void)sys_shm_unlink(segment->name); /* failing, it is found again by the next opener */
    } else {
        result = finish(segment, &status, known_revision);
        int error = errno;
        /* Nobody can use it yet: we hold the start byte, and it has no layout number. */
        if (result == PIX_SYSTEM && made)
            (void)sys_shm_unlink(segment->name);
        errno = error;
    }
    int error = errno;
    sys_byte_unlock(segment->descriptor, PIX_START_BYTE);
    errno = error;
    return result;
}

/* What has the name, where it could not be opened. */
static int refusal(int error)
{
    switch (error) {
    case ENOENT:
        return PIX_ABSENT;
    case ELOOP:  /* a link */
    case EINVAL: /* a directory, which glibc's shm_open reports so; the name itself is valid */
    case EAGAIN: /* a file with somebody's lease on it */
    case ENXIO:  /* a socket */
        return PIX_FOREIGN;
    default:
        return PIX_SYSTEM;
    }
}

static int open_and_verify(struct pix_segment *segment, uint64_t known_revision, int role)
{
    segment->descriptor = sys_shm_open(segment->name);
    if (segment->descriptor < 0)
        return refusal(errno);
    struct stat status;
    if (sys_fstat(segment->descriptor, &status) < 0)
        return PIX_SYSTEM;
    segment->device = status.st_dev;
    segment->inode = status.st_ino;
    int result = verify_file(&status);
    if (result != PIX_OK)
        return result;
    if (has_memory(&status)) {
        result = map_memory(segment);
        if (result != PIX_OK)
            return result;
        result = verify_content(segment->map);
    } else {
        result = PIX_STARTING;
    }
    bool unsettled = result == PIX_STARTING || (result == PIX_OK && is_retired(segment->map));
    if (unsettled && role == PIX_READ)
        return PIX_ABSENT;
    if (unsettled)
        return settle(segment, known_revision, role == PIX_MADE);
    if (result == PIX_OK && (!is_ours(segment, &status) || status.st_nlink == 0))
        result = PIX_ABSENT; /* removed while we looked */
    return result;
}

/* Also called in a forked child, where it may use nothing but system calls and our own memory. */
void segment_leave(struct pix_segment *segment)
{
    struct stat status;
    if (is_ours(segment, &status))
        sys_close(segment->descriptor);
    segment->descriptor = -1;
    memset(segment->own, 0, sizeof segment->own);
}

static void dispose(struct pix_segment *segment)
{
    segment_leave(segment);
    if (segment->map != NULL)
        sys_unmap(segment->map, PIX_SIZE);
    if (segment->semaphore != NULL)
        sys_sem_close(segment->semaphore);
    free(segment);
}

static bool find_semaphore(struct pix_segment *segment)
{
    if (segment->semaphore == NULL)
        segment->semaphore = sys_sem_open(segment->name);
    return segment->semaphore != NULL;
}

int pix_semaphore(pix_segment *segment)
{
    process_lock_always();
    bool found = find_semaphore(segment);
    process_unlock();
    return found;
}

int pix_open(const char *name, uint64_t known_revision, int role, pix_segment **opened)
{
    size_t length = strlen(name);
    struct pix_segment *segment;
    if (length < 2 || length > PIX_NAME_BYTES - 2 || name[0] != '/' ||
        strchr(name + 1, '/') != NULL) {
        errno = EINVAL;
        return PIX_SYSTEM;
    }
    segment = calloc(1, sizeof *segment);
    if (segment == NULL)
        return PIX_SYSTEM;
    memcpy(segment->name, name, length);
    /* The descriptor is made, and its handle listed, without a fork in between: see fork.c. */
    process_lock_always();
    int result = open_and_verify(segment, known_revision, role);
    if (result == PIX_OK) {
        (void)find_semaphore(segment);
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
int segment_look(struct pix_segment *segment, bool by_name)
{
    struct stat status;
    if (!is_ours(segment, &status)) {
        segment_leave(segment);
        return PIX_STALE;
    }
    return status.st_nlink > 0 && (!by_name || has_name(segment)) ? PIX_OK : PIX_RETIRED;
}

int segment_check(struct pix_segment *segment, bool by_name)
{
    int result = segment_look(segment, by_name);
    if (result == PIX_RETIRED) {
        /* For good, so that whoever still reads here learns it at the next read and not at its next
         * look. release: a reader that sees the mark goes to the new segment, where our leases will
         * be. */
        atomic_fetch_or_explicit(&segment->map->summary, PIX_RETIRED_MASK, memory_order_release);
        atomic_fetch_or_explicit(&segment->map->revision, PIX_RETIRED_MASK, memory_order_release);
        changes_tell(segment->map);
    }
    return result;
}
