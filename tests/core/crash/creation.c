/* creation.c: deaths in making a segment, and in taking the name off one that is retired.
 *
 * Here a state is the file that has the name, if there is one: its size, whether there is memory
 * behind it, and the header. Whoever comes next must end with a segment that can be used, and all
 * who come later with the same one.
 *
 * Linked with --wrap for memset, with which the core clears a segment. Only its first bytes are
 * ever anything but zero here, and clearing the others would take all of the time. */
#define _GNU_SOURCE
#include "crash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILLED = 256 }; /* bytes that an unfinished segment may have filled in */

void *__real_memset(void *memory, int byte, size_t size);
void *__wrap_memset(void *memory, int byte, size_t size);

/* One by one, as the processor's own instruction does it. */
void *__wrap_memset(void *memory, int byte, size_t size)
{
    if (size != PIX_SIZE)
        return __real_memset(memory, byte, size);
    for (volatile char *at = memory; at < (char *)memory + FILLED; at++)
        *at = (char)byte;
#ifdef BREAK_LAYOUT_FIRST
    ((struct pix_layout *)memory)->layout = PIX_LAYOUT; /* not last */
#endif
    return memory;
}

enum { REVISION = 1650000000, STATES_MAX = 512 };

struct file {
    bool exists, has_memory;
    off_t size;
    uint64_t header[offsetof(struct pix_layout, rank) / 8];
};

static const char *name;
static struct file found[STATES_MAX], steps[STATES_MAX];
static unsigned found_count, step_count;
static bool watched; /* what this process does, rather than a child */
static const char *doing = "";

/* ---- files ----------------------------------------------------------------------------------- */

static struct pix_layout *map_now(int descriptor)
{
    void *memory = mmap(NULL, PIX_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static struct file file_now(void)
{
    struct file file;
    struct stat status;
    memset(&file, 0, sizeof file);
    int descriptor = shm_open(name, O_RDWR, 0);
    if (descriptor < 0) {
        CHECK_EQUAL(errno, ENOENT);
        return file;
    }
    CHECK_EQUAL(fstat(descriptor, &status), 0);
    file.exists = true;
    file.size = status.st_size;
    file.has_memory = status.st_blocks != 0;
    if (file.has_memory) {
        struct pix_layout *map = map_now(descriptor);
        memcpy(file.header, map, sizeof file.header);
        CHECK_EQUAL(munmap((void *)map, PIX_SIZE), 0);
    }
    CHECK_EQUAL(close(descriptor), 0);
    return file;
}

static bool same_file(const struct file *one, const struct file *other)
{
    return memcmp(one, other, sizeof *one) == 0;
}

static void put_file(const struct file *file)
{
    (void)sys_shm_unlink(name);
    if (!file->exists)
        return;
    create_file(name, (uint64_t)file->size, 0600);
    if (!file->has_memory)
        return;
    struct pix_layout *map = map_file(name);
    int descriptor = shm_open(name, O_RDWR, 0);
    CHECK(descriptor >= 0);
    CHECK_EQUAL(sys_allocate(descriptor, (size_t)file->size), 0);
    CHECK_EQUAL(close(descriptor), 0);
    memcpy((void *)map, file->header, sizeof file->header);
    CHECK_EQUAL(munmap((void *)map, PIX_SIZE), 0);
}

static void note_file(void)
{
    struct file file = file_now();
    if (same_file(&file, &steps[step_count - 1]))
        return;
    CHECK(step_count < STATES_MAX);
    steps[step_count++] = file;
}

static void begin_steps(void)
{
    steps[0] = file_now();
    step_count = 1;
}

static void add_found(void)
{
    for (unsigned i = 0; i < step_count; i++) {
        unsigned same = 0;
        while (same < found_count && !same_file(&found[same], &steps[i]))
            same++;
        if (same < found_count)
            continue;
        CHECK(found_count < STATES_MAX);
        found[found_count++] = steps[i];
    }
}

/* ---- who comes ------------------------------------------------------------------------------- */

/* As pix_shm/segment.py does it. */
static pix_segment *come(void)
{
    pix_segment *segment = NULL;
    int role = PIX_JOIN;
    for (unsigned tries = 0; tries < 8; tries++) {
        int result = pix_open(name, REVISION, role, &segment);
        if (result == PIX_OK)
            return segment;
        CHECK_EQUAL(result, PIX_ABSENT);
        int descriptor = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(descriptor >= 0);
        CHECK_EQUAL(close(descriptor), 0);
        if (watched)
            note_file();
        role = PIX_MADE;
    }
    check_failed(__FILE__, __LINE__, "it is absent again and again");
}

static void come_in_child(const void *unused)
{
    (void)unused;
    stop_here();
    (void)come();
    stop_here();
}

static bool is_whole(const struct file *file)
{
    struct image image;
    memset(&image, 0, sizeof image);
    memcpy(image.header, file->header, sizeof image.header);
    return (uint32_t)HEADER(&image, layout) == PIX_LAYOUT &&
           ((HEADER(&image, summary) | HEADER(&image, revision)) & PIX_RETIRED_MASK) == 0;
}

/* The first that came has a segment that can be used, and others find the same one. */
static void check_usable(pix_segment *first, const struct file *before_it)
{
    struct file file = file_now();
    CHECK(is_whole(&file));
    for (size_t i = FILLED / 8; i < sizeof file.header / 8; i++)
        CHECK_EQUAL(file.header[i], 0);
    uint64_t revision = revision_of(first);
    CHECK(revision > REVISION);
    if (is_whole(before_it))
        CHECK(same_file(before_it, &file));
    pix_segment *second = come(), *reader;
    CHECK_EQUAL(pix_open(name, 0, PIX_READ, &reader), PIX_OK);
    CHECK_EQUAL(second->inode, first->inode);
    CHECK_EQUAL(reader->inode, first->inode);
    CHECK_EQUAL(claim(first), 0);
    CHECK_EQUAL(claim(second), 1);
    CHECK_EQUAL(publish(first, 0, 1, 0, 1), PIX_OK);
    CHECK_EQUAL(publish(second, 1, 0, 1, 1), PIX_OK);
    CHECK_EQUAL(activities_in(summary_of(reader)), 1);
    CHECK_EQUAL(blocks_in(summary_of(reader)), 1);
    CHECK_EQUAL(revision_of(reader), revision);
    pix_close(reader);
    pix_close(second);
    pix_close(first);
}

/* A reader finds a whole segment or none, and changes nothing. */
static void check_reader(const struct file *file)
{
    pix_segment *reader;
    doing = "a reader opens";
    put_file(file);
    int result = pix_open(name, 0, PIX_READ, &reader);
    CHECK_EQUAL(result, is_whole(file) ? PIX_OK : PIX_ABSENT);
    if (result == PIX_OK)
        pix_close(reader);
    struct file now = file_now();
    CHECK(same_file(file, &now));
}

static void come_watched(const struct file *file)
{
    put_file(file);
    begin_steps();
    stores_watch(NULL, note_file);
    watched = true;
    pix_segment *segment = come();
    watched = false;
    stores_unwatch();
    check_usable(segment, file);
}

/* ---- what they find -------------------------------------------------------------------------- */

static struct file nothing_there(void)
{
    return (struct file){.exists = false};
}

static struct file an_empty_file(void)
{
    return (struct file){.exists = true};
}

static struct file a_file_without_memory(void)
{
    return (struct file){.exists = true, .size = PIX_SIZE};
}

static struct file a_segment(uint64_t marked_summary, uint64_t marked_revision)
{
    put_file(&(struct file){.exists = false});
    pix_segment *segment = come();
    segment->map->summary |= marked_summary;
    segment->map->revision |= marked_revision;
    pix_close(segment);
    return file_now();
}

static struct file a_retired_segment(void)
{
    return a_segment(PIX_RETIRED_MASK, PIX_RETIRED_MASK);
}

static struct file a_segment_half_marked_retired(void)
{
    return a_segment(PIX_RETIRED_MASK, 0);
}

static const struct {
    const char *name;
    struct file (*make)(void);
} beginnings[] = {
    {"make a segment", nothing_there},
    {"finish an empty file", an_empty_file},
    {"finish a file without memory", a_file_without_memory},
    {"replace a retired segment", a_retired_segment},
    {"replace one that is half marked", a_segment_half_marked_retired},
};

static void tell_doing(void)
{
    if (*doing != '\0')
        fprintf(stderr, "in: %s\n", doing);
}

static void watch(const struct file *file, struct figures *figures)
{
    static struct file by_instructions[STATES_MAX];
    unsigned count = 0;
    put_file(file);
    pid_t child = start_traced(come_in_child, NULL);
    if (child != 0) {
        begin_steps();
        figures->instructions = step_child(child, note_file);
        count = step_count;
        memcpy(by_instructions, steps, sizeof steps);
    }
    come_watched(file);
    if (child == 0)
        return;
    CHECK_EQUAL(step_count, count);
    for (unsigned i = 0; i < count; i++)
        CHECK(same_file(&by_instructions[i], &steps[i]));
}

static void run_beginning(const char *what, const struct file *file)
{
    struct figures figures = {0};
    doing = what;
    watch(file, &figures);
    found_count = 0;
    add_found();
    figures.images = step_count;
    figures.states = found_count;
    for (unsigned next = 0; next < found_count;) {
        figures.depth++;
        for (unsigned end = found_count; next < end; next++) {
            struct file state = found[next];
            check_reader(&state);
            doing = what;
            stores = 0;
            come_watched(&state);
            figures.stores += stores;
            figures.recoveries++;
            add_found();
        }
    }
    figures.found = found_count - figures.states;
    print_figures(what, &figures);
}

TEST(in_making)
{
    (void)alarm(0); /* whoever starts this sees to its end */
    CHECK_EQUAL(atexit(tell_doing), 0);
    name = new_name();
    for (unsigned i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        struct file file = beginnings[i].make();
        run_beginning(beginnings[i].name, &file);
    }
    doing = "";
}
