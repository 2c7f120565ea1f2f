/* segment.c: opening, verifying and initialising a segment, and noticing that it was removed.
 *
 * Linked with --wrap for sys_allocate, sys_wall_ms and sys_byte_lock: the first is called only to
 * give a file its size, the second only to initialise one. */
#define _GNU_SOURCE
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALLOCATIONS, INITIALISATIONS, READY, GO, LEVEL }; /* words in `shared` */

int __real_sys_allocate(int descriptor, size_t size);
uint64_t __real_sys_wall_ms(void);
int __real_sys_byte_lock(int descriptor, int64_t byte);
int __wrap_sys_allocate(int descriptor, size_t size);
uint64_t __wrap_sys_wall_ms(void);
int __wrap_sys_byte_lock(int descriptor, int64_t byte);

static void (*before_byte_lock)(void);
static void (*while_initialising)(void);

int __wrap_sys_allocate(int descriptor, size_t size)
{
    shared[ALLOCATIONS]++;
    return __real_sys_allocate(descriptor, size);
}

uint64_t __wrap_sys_wall_ms(void)
{
    shared[INITIALISATIONS]++;
    if (while_initialising != NULL)
        while_initialising();
    return __real_sys_wall_ms();
}

int __wrap_sys_byte_lock(int descriptor, int64_t byte)
{
    if (byte == PIX_START_BYTE && before_byte_lock != NULL)
        before_byte_lock();
    return __real_sys_byte_lock(descriptor, byte);
}

static int open_result(const char *name)
{
    pix_segment *segment = NULL;
    int result = pix_open(name, 0, PIX_JOIN, &segment);
    CHECK((segment != NULL) == (result == PIX_OK));
    if (result == PIX_OK)
        pix_close(segment);
    return result;
}

static int64_t size_of(const char *name)
{
    struct stat status;
    CHECK_EQUAL(lstat(segment_path(name), &status), 0);
    return status.st_size;
}

static bool exists(const char *name)
{
    return access(segment_path(name), F_OK) == 0;
}

/* ---- what is not ours is not touched --------------------------------------------------------- */

TEST(absent)
{
    const char *name = new_name();
    CHECK_EQUAL(open_result(name), PIX_ABSENT);
    CHECK(!exists(name));
}

TEST(impossible_names)
{
    static const char *const impossible[] = {"",       "/",     "pix",
                                             "/pix/t", "//pix", "/pix-t-0123456789-0123456789-01"};
    for (unsigned i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        errno = 0;
        CHECK_EQUAL(open_result(impossible[i]), PIX_SYSTEM);
        CHECK_EQUAL(errno, EINVAL);
    }
}

TEST(foreign_owner)
{
    if (geteuid() != 0)
        skip("only root can give a file away");
    const char *name = new_name();
    create_file(name, PIX_SIZE, 0600);
    CHECK_EQUAL(chown(segment_path(name), 12345, 12345), 0);
    CHECK_EQUAL(open_result(name), PIX_FOREIGN);
    CHECK_EQUAL(shared[INITIALISATIONS], 0);
}

TEST(other_modes)
{
    static const unsigned modes[] = {0640, 0604, 0660, 0666, 0700, 0400, 0200, 0, 01600, 04600};
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        const char *name = new_name();
        create_file(name, 0, modes[i]);
        int result = open_result(name);
        /* somebody else than root is refused by the system already where bits are missing */
        CHECK(result == PIX_FOREIGN || (result == PIX_SYSTEM && geteuid() != 0));
        CHECK_EQUAL(size_of(name), 0);
    }
}

TEST(symbolic_link)
{
    const char *target = new_name();
    const char *name = new_name();
    char path[128];
    pix_close(create_segment(target));
    (void)strcpy(path, segment_path(target));
    CHECK_EQUAL(symlink(path, segment_path(name)), 0);
    CHECK_EQUAL(open_result(name), PIX_FOREIGN);
    CHECK_EQUAL(open_result(target), PIX_OK);
}

TEST(directory)
{
    const char *name = new_name();
    CHECK_EQUAL(mkdir(segment_path(name), 0600), 0);
    CHECK_EQUAL(open_result(name), PIX_FOREIGN);
}

TEST(named_pipe)
{
    const char *name = new_name();
    CHECK_EQUAL(mkfifo(segment_path(name), 0600), 0);
    CHECK_EQUAL(open_result(name), PIX_FOREIGN);
}

TEST(socket_of_that_name)
{
    const char *name = new_name();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)strcpy(address.sun_path, segment_path(name));
    int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(descriptor >= 0);
    CHECK_EQUAL(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_EQUAL(open_result(name), PIX_FOREIGN);
    CHECK(exists(name));
    CHECK_EQUAL(close(descriptor), 0);
}

/* Field case B25. */
TEST(unsuitable_sizes)
{
    static const uint64_t sizes[] = {
        1, 4095, 4096, PIX_SIZE - 4096, PIX_SIZE - 1, PIX_SIZE + 1, PIX_SIZE + 4095};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *name = new_name();
        create_file(name, sizes[i], 0600);
        CHECK_EQUAL(open_result(name), PIX_MALFORMED);
        CHECK_EQUAL(size_of(name), sizes[i]);
    }
    CHECK_EQUAL(shared[ALLOCATIONS], 0);
}

/* Field case B25. */
TEST(a_larger_one_is_accepted_and_keeps_its_size)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    CHECK_EQUAL(truncate(segment_path(name), 2 * PIX_SIZE), 0);
    shared[ALLOCATIONS] = 0;
    CHECK_EQUAL(open_result(name), PIX_OK);
    CHECK_EQUAL(shared[ALLOCATIONS], 0);
    CHECK_EQUAL(size_of(name), 2 * PIX_SIZE);
    pix_close(segment);
}

/* Field case B26. */
TEST(other_content_is_never_trusted)
{
    const char *name = new_name();
    pix_close(create_segment(name));
    struct pix_layout *map = map_file(name);
    map->magic++;
    CHECK_EQUAL(open_result(name), PIX_MALFORMED);
    map->magic--;
    map->slots = PIX_SLOTS * 2;
    CHECK_EQUAL(open_result(name), PIX_MALFORMED);
    map->slots = PIX_SLOTS;
    map->layout = PIX_LAYOUT + 1;
    CHECK_EQUAL(open_result(name), PIX_MALFORMED);
    map->layout = UINT32_MAX;
    CHECK_EQUAL(open_result(name), PIX_MALFORMED);
    map->layout = PIX_LAYOUT;
    CHECK_EQUAL(open_result(name), PIX_OK);
    CHECK_EQUAL(shared[INITIALISATIONS], 1);
}

/* Field case B25. */
TEST(an_attacher_changes_nothing)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    char *before = malloc(PIX_SIZE);
    CHECK(before != NULL);
    memcpy(before, segment->map, PIX_SIZE);
    shared[ALLOCATIONS] = 0;
    CHECK_EQUAL(open_result(name), PIX_OK);
    CHECK(memcmp(before, segment->map, PIX_SIZE) == 0);
    CHECK_EQUAL(shared[ALLOCATIONS], 0);
    free(before);
    pix_close(segment);
}

/* ---- what is unfinished is finished, by one ---------------------------------------------------*/

static void check_fresh(pix_segment *segment, uint64_t at_least)
{
    CHECK_EQUAL(segment->map->magic, PIX_MAGIC);
    CHECK_EQUAL(segment->map->lock, 0);
    CHECK_EQUAL(summary_of(segment) & ((UINT64_C(1) << PIX_SUMMARY_EPOCH) - 1), 0);
    CHECK(revision_of(segment) >= at_least);
    CHECK_EQUAL(revision_of(segment) >> PIX_RETIRED_BIT, 0);
    for (unsigned i = 0; i < PIX_WORDS; i++)
        CHECK_EQUAL(segment->map->used[i], 0);
    for (unsigned slot = 0; slot < PIX_SLOTS; slot++)
        CHECK_EQUAL(segment->map->rank[slot], 0);
}

TEST(a_new_one_begins_at_the_wall_clock)
{
    uint64_t before = sys_wall_ms();
    pix_segment *segment = create_segment(new_name());
    check_fresh(segment, before);
    CHECK_EQUAL(slots_alive(segment), 0);
    pix_close(segment);
}

TEST(a_new_one_begins_above_what_its_maker_knew)
{
    const char *name = new_name();
    pix_segment *segment;
    uint64_t known = sys_wall_ms() * 2;
    create_file(name, 0, 0600);
    CHECK_EQUAL(pix_open(name, known, PIX_MADE, &segment), PIX_OK);
    CHECK_EQUAL(revision_of(segment), known + 1);
    pix_close(segment);
}

static pix_segment *open_patiently(const char *name)
{
    pix_segment *segment;
    int result;
    while ((result = pix_open(name, 0, PIX_JOIN, &segment)) == PIX_STARTING)
        (void)usleep(100);
    CHECK_EQUAL(result, PIX_OK);
    return segment;
}

static void open_with_the_others(const void *name)
{
    shared[READY]++;
    wait_until_shared(GO, 1);
    pix_segment *segment = open_patiently(name);
    /* everyone sees the one revision that the one initialiser made */
    uint64_t expected = 0;
    uint64_t revision = revision_of(segment);
    if (!atomic_compare_exchange_strong(&shared[LEVEL], &expected, revision))
        CHECK_EQUAL(revision, expected);
    pix_close(segment);
}

static void race(const char *name)
{
    enum { OPENERS = 8 };
    pid_t openers[OPENERS];
    shared[READY] = shared[GO] = shared[LEVEL] = shared[INITIALISATIONS] = 0;
    for (unsigned i = 0; i < OPENERS; i++)
        openers[i] = start_child(open_with_the_others, name);
    wait_until_shared(READY, OPENERS);
    shared[GO] = 1;
    for (unsigned i = 0; i < OPENERS; i++)
        expect_success(openers[i]);
    CHECK_EQUAL(shared[INITIALISATIONS], 1);
    CHECK_EQUAL(size_of(name), PIX_SIZE);
}

/* Field case B06. */
TEST(an_empty_one_is_initialised_by_exactly_one)
{
    for (unsigned round = 0; round < 20; round++) {
        const char *name = new_name();
        create_file(name, 0, 0600);
        race(name);
    }
}

/* Field case B06. */
TEST(an_unfinished_one_is_initialised_by_exactly_one)
{
    for (unsigned round = 0; round < 20; round++) {
        const char *name = new_name();
        pix_close(create_segment(name));
        map_file(name)->layout = 0;
        race(name);
    }
}

TEST(what_an_initialiser_left_is_wiped)
{
    const char *name = new_name();
    pix_close(create_segment(name));
    struct pix_layout *map = map_file(name);
    memset((char *)map, 0xa5, PIX_SIZE);
    map->layout = 0;
    uint64_t before = sys_wall_ms();
    pix_segment *segment = join_segment(name);
    check_fresh(segment, before);
    CHECK_EQUAL(claim(segment), 0);
    pix_close(segment);
}

static void initialise_for_ever(const void *name)
{
    while_initialising = sleep_for_ever;
    (void)open_result(name);
}

/* Field case B06. */
TEST(a_busy_initialiser_is_left_alone_and_a_dead_one_replaced)
{
    const char *name = new_name();
    create_file(name, 0, 0600);
    pid_t child = start_child(initialise_for_ever, name);
    wait_until_shared(INITIALISATIONS, 1);
    CHECK_EQUAL(open_result(name), PIX_STARTING);
    CHECK_EQUAL(kill(child, SIGSTOP), 0);
    wait_until_stopped(child);
    CHECK_EQUAL(open_result(name), PIX_STARTING);
    kill_child(child);
    CHECK_EQUAL(open_result(name), PIX_OK);
    CHECK_EQUAL(shared[INITIALISATIONS], 2);
}

static const char *interposed;

static void begin_it_first(const void *name)
{
    wait_until_shared(GO, 1);
    CHECK_EQUAL(open_result(name), PIX_OK);
    shared[READY] = 1;
}

static void finish_it_meanwhile(void)
{
    shared[GO] = 1;
    wait_until_shared(READY, 1);
}

TEST(one_that_was_finished_meanwhile_is_taken_as_it_is)
{
    interposed = new_name();
    create_file(interposed, 0, 0600);
    pid_t quicker = start_child(begin_it_first, interposed);
    before_byte_lock = finish_it_meanwhile;
    CHECK_EQUAL(open_result(interposed), PIX_OK);
    CHECK_EQUAL(shared[INITIALISATIONS], 1);
    expect_success(quicker);
}

static void remove_it_meanwhile(void)
{
    CHECK_EQUAL(shm_unlink(interposed), 0);
}

TEST(one_that_was_removed_meanwhile_is_absent)
{
    interposed = new_name();
    create_file(interposed, 0, 0600);
    before_byte_lock = remove_it_meanwhile;
    CHECK_EQUAL(open_result(interposed), PIX_ABSENT);
    CHECK_EQUAL(shared[ALLOCATIONS], 0);
    CHECK(!exists(interposed));
}

/* ---- a full /dev/shm: the driver runs these over a small one of their own ---------------------
 */

static void fill_memory(void)
{
    char block[4096] = {0};
    int descriptor = open("/dev/shm/filling", O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(descriptor >= 0);
    while (write(descriptor, block, sizeof block) > 0)
        ;
    CHECK_EQUAL(errno, ENOSPC);
    CHECK_EQUAL(close(descriptor), 0);
}

/* These fill /dev/shm: never the machine's. */
static void want_small_memory(void)
{
    if (getenv("PIX_SMALL_SHM") == NULL)
        skip("wants a /dev/shm of its own");
    fill_memory();
}

/* Field case B11. */
TEST(full_memory_is_an_error_and_the_creator_leaves_nothing)
{
    want_small_memory();
    const char *name = new_name();
    pix_segment *segment;
    create_file(name, 0, 0600);
    CHECK_EQUAL(pix_open(name, 0, PIX_MADE, &segment), PIX_SYSTEM);
    CHECK_EQUAL(errno, ENOSPC);
    CHECK(!exists(name));
    CHECK_EQUAL(unlink("/dev/shm/filling"), 0);
    pix_close(create_segment(name)); /* and all is well once there is room */
}

/* Field case B11. */
TEST(full_memory_leaves_what_others_made)
{
    want_small_memory();
    const char *name = new_name();
    create_file(name, 0, 0600);
    CHECK_EQUAL(open_result(name), PIX_SYSTEM);
    CHECK_EQUAL(errno, ENOSPC);
    CHECK_EQUAL(size_of(name), 0);
    CHECK_EQUAL(unlink("/dev/shm/filling"), 0);
    CHECK_EQUAL(open_result(name), PIX_OK);
}

/* Field case B11. */
TEST(full_memory_under_a_hollow_file_is_an_error)
{
    want_small_memory();
    const char *name = new_name();
    create_file(name, PIX_SIZE, 0600); /* the right size, but no memory behind it */
    CHECK_EQUAL(open_result(name), PIX_SYSTEM);
    CHECK_EQUAL(errno, ENOSPC);
}

/* ---- removed ----------------------------------------------------------------------------------
 */

#define RETIRED (UINT64_C(1) << PIX_RETIRED_BIT)

TEST(looking_at_a_removed_one_marks_nothing)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    uint64_t summary;
    int ghosts;
    CHECK_EQUAL(pix_look(segment, &summary, &ghosts), PIX_OK);
    CHECK_EQUAL(shm_unlink(name), 0);
    CHECK_EQUAL(pix_look(segment, &summary, &ghosts), PIX_RETIRED);
    CHECK_EQUAL((summary_of(segment) | revision_of(segment)) & RETIRED, 0);
    pix_close(segment);
}

static void check_retired_for_good(pix_segment *segment, int slot)
{
    uint64_t identity[5] = {9, 9, 9, 9, 9};
    uint64_t revision = 0;
    CHECK((summary_of(segment) & RETIRED) != 0);
    CHECK((revision_of(segment) & RETIRED) != 0);
    CHECK_EQUAL(publish(segment, slot, 1, 1, 1), PIX_RETIRED);
    CHECK_EQUAL(pix_commit(segment, identity, 0, 0, &revision), PIX_RETIRED);
    CHECK_EQUAL(claim(segment), PIX_RETIRED);
    CHECK((summary_of(segment) & RETIRED) != 0);
    CHECK((revision_of(segment) & RETIRED) != 0);
    pix_release(segment, slot);
    CHECK((summary_of(segment) & RETIRED) != 0);
}

/* Field case B09. */
TEST(publishing_in_a_removed_one_retires_it)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 1, 0, 1), PIX_OK);
    CHECK_EQUAL(shm_unlink(name), 0);
    CHECK_EQUAL(publish(segment, slot, 2, 0, 1), PIX_RETIRED);
    check_retired_for_good(segment, slot);
    CHECK_EQUAL(activities_in(summary_of(segment)), 1); /* the old words stay readable */
    pix_close(segment);
}

TEST(committing_to_a_removed_one_retires_it)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    uint64_t identity[5] = {1, 2, 3, 4, 5};
    uint64_t revision = 0;
    int slot = claim(segment);
    CHECK_EQUAL(shm_unlink(name), 0);
    CHECK_EQUAL(pix_commit(segment, identity, 1, 0, &revision), PIX_RETIRED);
    check_retired_for_good(segment, slot);
    pix_close(segment);
}

/* Field case B08. */
TEST(claiming_in_a_replaced_one_retires_it)
{
    const char *name = new_name();
    pix_segment *old = create_segment(name);
    int slot = claim(old);
    CHECK_EQUAL(shm_unlink(name), 0);
    pix_segment *new = create_segment(name);
    CHECK_EQUAL(claim(old), PIX_RETIRED);
    check_retired_for_good(old, slot);
    CHECK_EQUAL((summary_of(new) | revision_of(new)) & RETIRED, 0);
    CHECK_EQUAL(claim(new), 0);
    CHECK_EQUAL(publish(new, 0, 1, 0, 1), PIX_OK);
    pix_close(new);
    pix_close(old);
}

TEST(one_that_was_moved_away_is_retired_too)
{
    const char *name = new_name();
    const char *elsewhere = new_name();
    char path[128];
    uint64_t summary;
    int ghosts;
    pix_segment *segment = create_segment(name);
    (void)strcpy(path, segment_path(name));
    CHECK_EQUAL(rename(path, segment_path(elsewhere)), 0);
    CHECK_EQUAL(pix_look(segment, &summary, &ghosts), PIX_RETIRED);
    CHECK_EQUAL(claim(segment), PIX_RETIRED);
    pix_close(segment);
}

static int read_result(const char *name)
{
    pix_segment *segment = NULL;
    int result = pix_open(name, 0, PIX_READ, &segment);
    if (result == PIX_OK)
        pix_close(segment);
    return result;
}

TEST(a_reader_finishes_nothing_and_removes_nothing)
{
    const char *name = new_name();
    create_file(name, 0, 0600);
    CHECK_EQUAL(read_result(name), PIX_ABSENT);
    CHECK_EQUAL(size_of(name), 0);
    CHECK_EQUAL(open_result(name), PIX_OK);
    CHECK_EQUAL(read_result(name), PIX_OK);
    struct pix_layout *map = map_file(name);
    map->layout = 0;
    CHECK_EQUAL(read_result(name), PIX_ABSENT);
    CHECK_EQUAL(map->layout, 0);
    map->layout = PIX_LAYOUT;
    map->summary |= RETIRED;
    CHECK_EQUAL(read_result(name), PIX_ABSENT);
    CHECK(exists(name));
    CHECK_EQUAL(shared[INITIALISATIONS], 1);
}

TEST(a_retired_one_loses_its_name)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    segment->map->revision |= RETIRED; /* by damage, say: nobody removed it */
    CHECK_EQUAL(open_result(name), PIX_ABSENT);
    CHECK(!exists(name));
    pix_segment *new = create_segment(name);
    CHECK_EQUAL(claim(new), 0);
    pix_close(new);
    pix_close(segment);
}

/* A host that becomes a daemon closes every descriptor that it does not know. */
TEST(a_descriptor_that_the_host_closed_is_noticed)
{
    const char *name = new_name();
    pix_segment *segment = create_segment(name);
    pix_segment *other = join_segment(name);
    int slot = claim(segment);
    CHECK_EQUAL(publish(segment, slot, 1, 1, 1), PIX_OK);
    int number = segment->descriptor;
    CHECK_EQUAL(close(number), 0);
    int recycled = open("/dev/null", O_RDONLY);
    CHECK_EQUAL(recycled, number);
    CHECK_EQUAL(slots_alive(other), 0);
    CHECK_EQUAL(publish(segment, slot, 1, 1, 1), PIX_STALE);
    CHECK_EQUAL(claim(segment), PIX_STALE);
    pix_close(segment);
    CHECK(fcntl(recycled, F_GETFD) >= 0); /* not ours to close */
    pix_close(other);
}
