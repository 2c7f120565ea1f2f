/* search.c: see crash.h.
 *
 * A state is an image and who lives. Who lives holds what it held before, since whoever acts dies,
 * sooner or later, in some state. The search takes each state that an operation passes through,
 * lets the living and newcomers go on from it in every way, checks what comes of it, and takes the
 * states that these pass through for further ones, until there is no new one. */
#include "crash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct figures figures, total;

/* ---- states ---------------------------------------------------------------------------------- */

struct state {
    struct image image;
    unsigned living;    /* a bit for each that is attached */
    bool removed;       /* the segment has no name any more */
    struct view moment; /* that the summary stands for */
    uint64_t revision;  /* the greatest that was visible */
    int origin;
};

/* How a state came about: who changed what in which state. */
static struct origin {
    int parent; /* or -1 */
    const char *what;
    unsigned change;
} *origins;
static size_t origin_count;
static int present = -1; /* where we are, for whoever reads of a failure */
static const char *doing = "";

static int add_origin(int parent, const char *what, unsigned change)
{
    if ((origin_count & (origin_count + 1)) == 0) /* none left: double */
        origins = realloc(origins, 2 * (origin_count + 1) * sizeof *origins);
    CHECK(origins != NULL);
    origins[origin_count] = (struct origin){parent, what, change};
    return (int)origin_count++;
}

static void tell_where(void)
{
    if (*doing == '\0')
        return;
    fprintf(stderr, "in: %s\n", doing);
    for (int i = present; i >= 0; i = origins[i].parent)
        fprintf(stderr, "after a death in: %s, after its change %u\n", origins[i].what,
                origins[i].change);
}

/* States that were met: a table of keys, open addressing. */
static struct key *met;
static size_t met_size, met_count;

static bool meet(struct key key)
{
    size_t at = key.word[0] & (met_size - 1);
    while (met[at].word[0] != 0) {
        if (met[at].word[0] == key.word[0] && met[at].word[1] == key.word[1])
            return false;
        at = (at + 1) & (met_size - 1);
    }
    met[at] = key;
    met_count++;
    return true;
}

static bool is_first_meeting(struct key key)
{
    if (2 * met_count >= met_size) {
        struct key *old = met;
        size_t old_size = met_size;
        met_size = old_size != 0 ? 2 * old_size : 4096;
        met = calloc(met_size, sizeof *met);
        CHECK(met != NULL);
        met_count = 0;
        for (size_t i = 0; i < old_size; i++)
            if (old[i].word[0] != 0)
                (void)meet(old[i]);
        free(old);
    }
    return meet(key);
}

static struct state **queue;
static size_t queue_begin, queue_end, queue_size;

static void add_state(const struct state *state, bool anyway)
{
    struct key key = image_key(&state->image);
    key.word[0] = (key.word[0] ^ state->living ^ (uint64_t)state->removed << 8) | 1;
    if (!is_first_meeting(key) && !anyway)
        return;
    if (queue_end == queue_size) {
        queue_size = 2 * queue_size + 1024;
        queue = realloc(queue, queue_size * sizeof(struct state *));
        CHECK(queue != NULL);
    }
    queue[queue_end] = malloc(sizeof *state);
    CHECK(queue[queue_end] != NULL);
    *queue[queue_end++] = *state;
}

/* Add the states that the trace went through, in each of which whoever acted may have died. Those
 * of an operation are all gone on from, also where nobody should be able to tell them apart. */
static void add_trace(const struct state *from, unsigned living, const char *what)
{
    static struct state state;
    state.living = living;
    state.removed = from->removed;
    state.moment = from->moment;
    state.revision = from->revision;
    for (unsigned i = 0; i < trace->count; i++) {
        const struct image *image = &trace->image[i];
        uint64_t word = HEADER(image, summary);
        uint64_t revision = HEADER(image, revision) & ~PIX_RETIRED_MASK;
        state.image = *image;
        state.origin = add_origin(from->origin, what, i);
        present = state.origin;
        CHECK(revision >= state.revision);
        state.revision = revision;
        if (i > 0) {
            image_note_unknown(&trace->image[i - 1], image);
            if (word != HEADER(&trace->image[i - 1], summary))
                state.moment = moment_of(image);
        }
        if ((word & PIX_RETIRED_MASK) == 0) {
            struct view view = view_of(image, word, true);
            CHECK(same_view(&view, &state.moment));
        }
        add_state(&state, from->origin < 0);
    }
}

static unsigned distinct_in_trace(void)
{
    static struct key keys[CHANGES_MAX];
    unsigned count = 0;
    for (unsigned i = 0; i < trace->count; i++) {
        unsigned same = 0;
        keys[count] = image_key(&trace->image[i]);
        while (memcmp(&keys[same], &keys[count], sizeof *keys) != 0)
            same++;
        count += same == count;
    }
    return count;
}

/* ---- recovery -------------------------------------------------------------------------------- */

static int settle_down(struct actor *actor)
{
    actor->slot = pix_claim(actor->segment, 0, 4712, "newcomer", 8, "pane 2", 6);
    return actor->slot < 0 ? actor->slot : say(actor, &a_newcomers);
}

/* Of the file that is known. */
static int commit_the_same(struct actor *actor)
{
    uint64_t identity[5], revision;
    for (unsigned i = 0; i < 5; i++)
        identity[i] = world.map->identity[i];
    return pix_commit(actor->segment, identity, 0, 0, &revision);
}

static int publish_more(struct actor *actor)
{
    return say(actor, &after[actor->slot]);
}

static int publish_more_and_look(struct actor *actor)
{
    look_soon(actor);
    return say(actor, &after[actor->slot]);
}

static int leave_slot(struct actor *actor)
{
    pix_release(actor->segment, actor->slot);
    return PIX_OK;
}

/* Everybody else can go on as well, and the slots of the dead are there to be claimed. */
static void check_everybody(struct living living, uint64_t revision)
{
    for (unsigned i = 0; i < ATTACHED; i++) {
        if (!slot_is_own(world.attached[i].segment, (unsigned)world.attached[i].slot))
            continue;
        CHECK_EQUAL(publish_more_and_look(&world.attached[i]), PIX_OK);
        holds(&living, world.attached[i].slot, &after[i]);
        check_progress(&revision);
        check_settled(&living);
    }
    struct actor newcomer = arrive();
    CHECK_EQUAL(commit_the_same(&newcomer), PIX_OK);
    CHECK_EQUAL(world.map->revision, revision + 1);
    for (unsigned slot = 0; slot < NEAR; slot++) {
        if ((world.map->used[0] & bit_of(slot)) != 0)
            continue;
        shared[ONLY_SLOT] = slot + 1;
        CHECK_EQUAL(settle_down(&newcomer), PIX_OK);
        shared[ONLY_SLOT] = 0;
        CHECK_EQUAL(newcomer.slot, slot);
        holds(&living, (int)slot, &a_newcomers);
    }
    check_progress(&revision);
    check_settled(&living);
    die(&newcomer);
}

/* One way to go on from a state. */
static const struct recovery {
    const char *name;
    enum who { THE_FIRST_ATTACHED, A_NEWCOMER, THE_HEIR } who;
    int (*act)(struct actor *actor);
    bool frees_the_dead; /* also where their lock need not be taken */
} recoveries[] = {
    {"a survivor publishes, and looks around", THE_FIRST_ATTACHED, publish_more_and_look, true},
    {"a newcomer claims and publishes", A_NEWCOMER, settle_down, true},
    {"the heir of the lock's slot claims and publishes", THE_HEIR, settle_down, true},
    {"a survivor publishes", THE_FIRST_ATTACHED, publish_more, false},
    {"a survivor commits", THE_FIRST_ATTACHED, commit_the_same, false},
    {"a visitor commits", A_NEWCOMER, commit_the_same, false},
    {"a survivor releases its slot", THE_FIRST_ATTACHED, leave_slot, false},
};

/* The slot of agents that the lock names, if its owner is dead; else -1. */
static int slot_to_inherit(void)
{
    int slot = (int)(world.map->lock & 0xffff) - 1;
    return slot >= 0 && slot < PIX_AGENTS && slot_is_dead(world.reader.segment, (unsigned)slot)
               ? slot
               : -1;
}

static void run(const struct recovery *recovery, struct actor *actor, bool watched)
{
    if (watched) {
        trace_begin(world.map);
        stores = 0;
        stores_watch(actor->segment->map, trace_note);
    }
    int result = recovery->act(actor);
    stores_unwatch();
    CHECK_EQUAL(result, PIX_OK);
    figures.recoveries++;
    if (watched) {
        figures.stores += stores;
        CHECK(image_rest_is(world.map, world.original));
    }
}

static void account(struct living *living, const struct recovery *recovery,
                    const struct actor *actor)
{
    if (recovery->act == publish_more || recovery->act == publish_more_and_look)
        holds(living, actor->slot, &after[actor->slot]);
    else if (recovery->act == settle_down)
        holds(living, actor->slot, &a_newcomers);
    else if (recovery->act == leave_slot)
        left(living, actor->slot);
}

static void recover(const struct state *state, const struct recovery *recovery, bool watched)
{
    restore(&state->image, state->living);
    struct living living = living_in(state->living);
    bool orphaned = lock_is_orphaned(world.reader.segment);
    uint64_t revision = state->revision;
    struct actor newcomer, *actor = &newcomer;
    unsigned first = state->living != 0 ? lowest_bit(state->living) : ATTACHED;
    if (recovery->who == THE_FIRST_ATTACHED) {
        if (first == ATTACHED)
            return;
        actor = &world.attached[first];
    }
    if (recovery->who == THE_HEIR) {
        int slot = slot_to_inherit();
        if (slot < 0)
            return;
        shared[ONLY_SLOT] = (uint64_t)slot + 1;
    }
    if (actor == &newcomer)
        newcomer = arrive();
    doing = recovery->name;
    run(recovery, actor, watched);
    shared[ONLY_SLOT] = 0;
    account(&living, recovery, actor);
    check_progress(&revision);
    if (recovery->frees_the_dead || orphaned)
        check_settled(&living);
    check_everybody(living, revision);
    if (actor == &newcomer)
        die(&newcomer);
    if (watched)
        add_trace(state, actor == &newcomer ? state->living : state->living & ~(1U << first),
                  recovery->name);
    present = state->origin;
}

/* Whoever died in committing a file: one who sees it says so, and then there was a revision. */
static void check_notice(const struct state *state)
{
    for (unsigned i = 0; i < COMMITTED; i++) {
        restore(&state->image, state->living);
        struct actor visitor = arrive();
        CHECK_EQUAL(notice(&visitor, i), PIX_OK);
        CHECK(world.map->revision > HEADER(&world.base, revision));
        die(&visitor);
    }
}

static void go_on_from(const struct state *state, bool watched)
{
    present = state->origin;
    doing = "looking around";
    restore(&state->image, state->living);
    struct living living = living_in(state->living);
    check_look(&living);
    doing = "a visitor notices the file";
    check_notice(state);
    for (unsigned i = 0; i < sizeof recoveries / sizeof *recoveries; i++)
        recover(state, &recoveries[i], watched);
}

/* ---- moving, from a segment that was removed ------------------------------------------------- */

/* As pix_shm/segment.py does it. */
static struct actor move(uint64_t known_revision)
{
    struct actor actor = {.name = world.name, .slot = -1};
    int result = pix_open(world.name, known_revision, PIX_JOIN, &actor.segment);
    if (result == PIX_ABSENT) {
        create_file(world.name, 0, 0600);
        result = pix_open(world.name, known_revision, PIX_MADE, &actor.segment);
    }
    CHECK_EQUAL(result, PIX_OK);
    actor.slot = claim(actor.segment);
    return actor;
}

static bool is_marked(const struct pix_layout *map)
{
    return (map->summary & map->revision & PIX_RETIRED_MASK) != 0;
}

/* All find each other in one new segment, whose revision is above that of the old one. */
static void check_move(uint64_t revision, unsigned living)
{
    struct actor moved[ATTACHED + 1];
    unsigned count = 0;
    struct view sum = {.activities = 0};
    for (unsigned i = 0; i < ATTACHED; i++) {
        if ((living >> i & 1) == 0)
            continue;
        moved[count] = move(revision);
        CHECK_EQUAL(say(&moved[count++], &before[i]), PIX_OK);
        sum.activities += before[i].activities;
    }
    moved[count] = move(0);
    CHECK_EQUAL(say(&moved[count], &a_newcomers), PIX_OK);
    uint64_t word = summary_of(moved[0].segment);
    CHECK_EQUAL(activities_in(word), sum.activities);
    CHECK_EQUAL(blocks_in(word), a_newcomers.blocks);
    CHECK_EQUAL(winner_in(word), moved[count].slot);
    CHECK(living == 0 || revision_of(moved[0].segment) > revision);
    for (unsigned i = 0; i <= count; i++)
        CHECK_EQUAL(moved[i].segment->inode, moved[0].segment->inode);
    for (unsigned i = 0; i <= count; i++)
        die(&moved[i]);
    CHECK_EQUAL(sys_shm_unlink(world.name), 0);
}

static void move_on_from(const struct state *state, bool watched)
{
    uint64_t word;
    int ghosts;
    present = state->origin;
    doing = "looking around in a removed segment";
    restore(&state->image, state->living);
    CHECK_EQUAL(pix_look(world.reader.segment, &word, &ghosts), PIX_RETIRED);
    for (unsigned i = 0; i < ATTACHED; i++) {
        if ((state->living >> i & 1) == 0)
            continue;
        doing = "an agent publishes in a removed segment, and moves";
        restore(&state->image, state->living);
        trace_begin(world.map);
        stores = 0;
        stores_watch(world.attached[i].segment->map, trace_note);
        int result = say(&world.attached[i], &after[i]);
        stores_unwatch();
        CHECK_EQUAL(result, PIX_RETIRED);
        CHECK(is_marked(world.map));
        figures.recoveries++;
        figures.stores += stores;
        if (watched)
            add_trace(state, state->living & ~(1U << i), doing);
    }
    check_move(state->revision, state->living);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Deaths in a row; 0 for as many as there are new states. The states after the last of them are
 * recovered from, but the recoveries' own are not looked at. */
static unsigned depth_limit = 2;

static void search(void (*go_on)(const struct state *, bool))
{
    for (unsigned depth = 1; queue_begin < queue_end; depth++) {
        size_t end = queue_end;
        figures.depth = depth;
        for (; queue_begin < end; queue_begin++) {
            go_on(queue[queue_begin], depth_limit == 0 || depth < depth_limit);
            free(queue[queue_begin]);
        }
    }
    queue_begin = queue_end = 0;
}

/* ---- the operations -------------------------------------------------------------------------- */

static bool is_expected(const struct operation *operation, int result)
{
    return operation->result == PIX_OK ? result >= PIX_OK : result == operation->result;
}

static struct actor prepared(const struct operation *operation)
{
    struct actor actor = {.name = world.name, .slot = -1};
    if (operation->enter != NULL)
        CHECK(operation->enter(&actor) >= 0);
    if (operation->prepare != NULL)
        CHECK(operation->prepare(&actor) >= 0);
    return actor;
}

static void act_in_child(const void *what)
{
    const struct operation *operation = what;
    struct actor actor = prepared(operation);
    stop_here();
    int result = operation->act(&actor);
    stop_here();
    CHECK(is_expected(operation, result));
}

/* Every instruction of the operation; false where processes cannot be traced. */
static bool by_instructions(const struct operation *operation)
{
    restore(&world.base, EVERYBODY);
    pid_t child = start_traced(act_in_child, operation);
    if (child == 0)
        return false;
    arrange(operation->circumstance);
    trace_begin(world.map);
    figures.instructions = step_child(child, trace_note);
    shared[ONLY_SLOT] = 0;
    return true;
}

static void by_stores(const struct operation *operation)
{
    restore(&world.base, EVERYBODY);
    struct actor actor = prepared(operation);
    arrange(operation->circumstance);
    trace_begin(world.map);
    stores_watch(actor.segment != NULL ? actor.segment->map : NULL, trace_note);
    int result = operation->act(&actor);
    stores_unwatch();
    shared[ONLY_SLOT] = 0;
    CHECK(is_expected(operation, result));
    die(&actor);
}

static void renew_world(void)
{
    end_world();
    make_world();
}

/* Step through the operation in both ways. */
static void watch(const struct operation *operation)
{
    static struct trace stepped;
    bool traced = by_instructions(operation);
    if (traced) {
        stepped.count = trace->count;
        memcpy(stepped.image, trace->image, trace->count * sizeof *trace->image);
    }
    if (operation->circumstance == NO_NAME)
        renew_world(); /* a name that is gone is gone */
    by_stores(operation);
    if (!traced)
        return;
    CHECK_EQUAL(trace->count, stepped.count);
    for (unsigned i = 0; i < trace->count; i++)
        CHECK(memcmp(&trace->image[i], &stepped.image[i], sizeof *trace->image) == 0);
}

/* The holder of the lock, who lives, lets go in each state of the trace. */
static void let_go_in_trace(void)
{
    for (unsigned i = 0; i < trace->count; i++) {
        restore(&trace->image[i], EVERYBODY);
        let_go();
        image_take(&trace->image[i], world.map);
    }
}

static void add_operation(const struct operation *operation)
{
    struct state start = {.living = EVERYBODY, .origin = -1};
    start.moment = moment_of(&trace->image[0]);
    start.removed = operation->circumstance == NO_NAME;
    start.revision = HEADER(&world.base, revision);
    figures.images = trace->count;
    figures.states = distinct_in_trace();
    if (operation->circumstance == A_LIVE_HOLDER) {
        add_trace(&start, EVERYBODY & ~(1U << BYSTANDER), operation->name); /* or dies as well */
        let_go_in_trace();
    }
    add_trace(&start, EVERYBODY, operation->name);
}

void print_figures(const char *name, const struct figures *these)
{
    printf("%-40s %7" PRIu64 " %6" PRIu64 " %6" PRIu64 " %10" PRIu64 " %8" PRIu64 " %8" PRIu64
           " %6u\n",
           name, these->instructions, these->images, these->states, these->recoveries,
           these->stores, these->found, these->depth);
    (void)fflush(stdout);
}

static void run_operation(const struct operation *operation)
{
    figures = (struct figures){0};
    doing = operation->name;
    watch(operation);
    size_t known = met_count;
    add_operation(operation);
    search(operation->circumstance == NO_NAME ? move_on_from : go_on_from);
    figures.found = met_count - known;
    print_figures(operation->name, &figures);
    total.instructions += figures.instructions;
    total.images += figures.images;
    total.states += figures.states;
    total.recoveries += figures.recoveries;
    total.stores += figures.stores;
    total.found += figures.found;
    if (total.depth < figures.depth)
        total.depth = figures.depth;
}

TEST(in_use)
{
    const char *depth = getenv("PIX_CRASH_DEPTH");
    (void)alarm(0); /* whoever starts this sees to its end */
    if (depth != NULL)
        depth_limit = (unsigned)atoi(depth);
    CHECK_EQUAL(atexit(tell_where), 0);
    printf("%-40s %7s %6s %6s %10s %8s %8s %6s\n", "operation", "steps", "images", "states",
           "recoveries", "stores", "further", "deaths");
    make_world();
    for (unsigned i = 0; i < operation_count; i++) {
        run_operation(&operations[i]);
        if (operations[i].circumstance == NO_NAME)
            renew_world();
    }
    print_figures("total", &total);
    printf("words of the header that change and tell no states apart: %u\n", image_unknown());
    doing = "";
}
