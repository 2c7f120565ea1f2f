/* image.c: see crash.h. */
#include "crash.h"

#include <string.h>

#define EPOCH_MASK ((UINT64_C(1) << (PIX_RETIRED_BIT - PIX_SUMMARY_EPOCH)) - 1)

/* ---- bytes ----------------------------------------------------------------------------------- */

/* What the image consists of: near slots, then visitors', ranks and slots each in one piece. */
struct piece {
    size_t in_image, in_map, size;
};

#define PIECE(field, first_in_image, first_in_map, count)                                          \
    {offsetof(struct image, field) + (first_in_image) * sizeof(((struct image *)0)->field[0]),     \
     offsetof(struct pix_layout, field) + (first_in_map) * sizeof(((struct image *)0)->field[0]),  \
     (count) * sizeof(((struct image *)0)->field[0])}

static const struct piece pieces[] = {
    {offsetof(struct image, header), 0, offsetof(struct pix_layout, rank)},
    PIECE(rank, 0, 0, NEAR),
    PIECE(rank, NEAR, PIX_AGENTS, VISITORS),
    PIECE(slot, 0, 0, NEAR),
    PIECE(slot, NEAR, PIX_AGENTS, VISITORS),
};
enum { PIECES = sizeof pieces / sizeof *pieces };

void image_take(struct image *image, const struct pix_layout *map)
{
    for (unsigned i = 0; i < PIECES; i++)
        memcpy((char *)image + pieces[i].in_image, (const char *)map + pieces[i].in_map,
               pieces[i].size);
}

void image_put(const struct image *image, struct pix_layout *map)
{
    for (unsigned i = 0; i < PIECES; i++)
        memcpy((char *)map + pieces[i].in_map, (const char *)image + pieces[i].in_image,
               pieces[i].size);
}

bool image_is(const struct image *image, const struct pix_layout *map)
{
    for (unsigned i = 0; i < PIECES; i++)
        if (memcmp((const char *)image + pieces[i].in_image, (const char *)map + pieces[i].in_map,
                   pieces[i].size) != 0)
            return false;
    return true;
}

bool image_rest_is(const struct pix_layout *map, const struct pix_layout *original)
{
    for (unsigned i = 0; i < PIECES; i++) {
        size_t from = pieces[i].in_map + pieces[i].size;
        size_t to = i + 1 < PIECES ? pieces[i + 1].in_map : PIX_SIZE;
        CHECK(from <= to);
        if (memcmp((const char *)map + from, (const char *)original + from, to - from) != 0)
            return false;
    }
    return true;
}

static int watched(unsigned slot)
{
    if (slot < NEAR)
        return (int)slot;
    return slot >= PIX_AGENTS && slot < PIX_AGENTS + VISITORS ? (int)(slot - PIX_AGENTS + NEAR)
                                                              : -1;
}

/* ---- what a reader makes of them ------------------------------------------------------------- */

static uint64_t epoch_of(uint64_t word)
{
    return word >> PIX_SUMMARY_EPOCH & EPOCH_MASK;
}

static struct pix_details details_in(const struct pix_slot *slot, uint64_t sequence)
{
    struct pix_details details;
    memcpy(&details, (const void *)slot->details[sequence % 2], sizeof details);
    return details;
}

static struct view view_of_word(uint64_t word)
{
    return (struct view){activities_in(word), blocks_in(word), winner_in(word), 0, {0}};
}

static void add_message(struct view *view, const struct pix_details *details)
{
    view->length = details->message_length;
    CHECK(view->length <= PIX_MESSAGE_BYTES);
    memcpy(view->message, details->message, view->length);
}

struct view view_of(const struct image *image, uint64_t word, bool unchanged)
{
    struct view view = view_of_word(word);
    if ((word & UINT32_MAX) == 0) {
        view.winner = -1;
        return view;
    }
    int index = view.winner < 0 ? -1 : watched((unsigned)view.winner);
    CHECK(index >= 0 && view.winner < PIX_AGENTS);
    const struct pix_slot *slot = &image->slot[index];
    struct pix_details details = details_in(slot, slot->sequence);
    if (!unchanged)
        CHECK(((epoch_of(word) - details.epoch) & EPOCH_MASK) <= EPOCH_MASK >> 1);
    else if (details.epoch == ((epoch_of(word) + 1) & EPOCH_MASK))
        details = details_in(slot, slot->sequence + 1);
    add_message(&view, &details);
    return view;
}

/* What the slots that count hold, summed up. */
static void check_sum(const struct image *image, const struct view *view)
{
    uint64_t activities = 0, blocks = 0, rank = 0;
    int winner = -1;
    for (int slot = 0; slot < NEAR; slot++) {
        if (((&HEADER(image, used))[slot / 64] & bit_of((unsigned)slot)) == 0)
            continue;
        struct pix_details details = details_in(&image->slot[slot], image->slot[slot].sequence);
        activities += details.activities;
        blocks += details.blocks;
        if (image->rank[slot] > rank) {
            rank = image->rank[slot];
            winner = slot;
        }
    }
    CHECK_EQUAL(view->activities, activities);
    CHECK_EQUAL(view->blocks, blocks);
    CHECK_EQUAL(view->winner, winner);
}

struct view moment_of(const struct image *image)
{
    struct view view = view_of_word(HEADER(image, summary));
    check_sum(image, &view);
    if (view.winner < 0)
        return view;
    const struct pix_slot *slot = &image->slot[watched((unsigned)view.winner)];
    struct pix_details details = details_in(slot, slot->sequence);
    CHECK_EQUAL(details.blocks != 0, view.blocks != 0);
    CHECK(details.activities + details.blocks != 0);
    add_message(&view, &details);
    return view;
}

bool same_view(const struct view *one, const struct view *other)
{
    return one->activities == other->activities && one->blocks == other->blocks &&
           one->winner == other->winner && one->length == other->length &&
           memcmp(one->message, other->message, one->length) == 0;
}

/* ---- identity -------------------------------------------------------------------------------- */

/* The words of the header that are known here. Others are taken for counters that wake somebody:
 * they go with a state, but do not make it another. Neither does the identity of the config file:
 * nothing but a commit reads it, and how it is stored is seen to in the states of the commits. */
static const struct {
    size_t first, count;
    bool tells_apart;
} known[] = {
    {offsetof(struct pix_layout, magic) / 8, 1, true},
    {offsetof(struct pix_layout, layout) / 8, 1, true},
    {offsetof(struct pix_layout, lock) / 8, 1, true},
    {offsetof(struct pix_layout, summary) / 8, 1, true},
    {offsetof(struct pix_layout, revision) / 8, 1, true},
    {offsetof(struct pix_layout, activities) / 8, 1, true},
    {offsetof(struct pix_layout, blocks) / 8, 1, true},
    {offsetof(struct pix_layout, waiting) / 8, PIX_WORDS, true},
    {offsetof(struct pix_layout, used) / 8, PIX_WORDS, true},
    {offsetof(struct pix_layout, identity) / 8, 5, false},
};
enum { KNOWN = sizeof known / sizeof *known };

static bool is_known(size_t word)
{
    for (unsigned i = 0; i < KNOWN; i++)
        if (word >= known[i].first && word < known[i].first + known[i].count)
            return true;
    return false;
}

static void take_what_tells_apart(struct image *image, const struct image *from)
{
    for (unsigned i = 0; i < KNOWN; i++)
        if (known[i].tells_apart)
            memcpy(&image->header[known[i].first], &from->header[known[i].first],
                   known[i].count * sizeof *image->header);
}

static bool unknown[offsetof(struct pix_layout, rank) / 8];

void image_note_unknown(const struct image *before, const struct image *after)
{
    for (size_t i = 0; i < sizeof unknown; i++)
        if (before->header[i] != after->header[i] && !is_known(i))
            unknown[i] = true;
}

unsigned image_unknown(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < sizeof unknown; i++)
        count += unknown[i];
    return count;
}

/* Is the slot still of the generation that the lock names? An older one is dead, whichever it is.
 */
static uint64_t relative_lock(const struct image *image)
{
    uint64_t lock = HEADER(image, lock);
    if (lock == 0)
        return 0;
    int index = watched((unsigned)(lock & 0xffff) - 1);
    CHECK(index >= 0);
    CHECK(lock >> 16 <= image->slot[index].generation);
    return (lock & 0xffff) | (uint64_t)(lock >> 16 == image->slot[index].generation) << 16;
}

/* Details that are newer than the word are told from the others, which are all as good as each
 * other until the word says something else. */
static uint32_t relative_epoch(uint32_t epoch, uint64_t word)
{
    uint64_t behind = (epoch_of(word) - epoch) & EPOCH_MASK;
    return behind <= EPOCH_MASK >> 1 ? 0 : (uint32_t)(EPOCH_MASK + 1 - behind);
}

union details {
    struct pix_details field;
    uint64_t word[PIX_DETAILS_WORDS];
};

/* Bytes behind the end of a text are nothing. */
static void make_details_relative(union details *details, uint64_t word)
{
    size_t source = details->field.source_length, message = details->field.message_length;
    CHECK(source <= PIX_SOURCE_BYTES && message <= PIX_MESSAGE_BYTES);
    memset(details->field.source + source, 0, PIX_SOURCE_BYTES - source);
    memset(details->field.message + message, 0, PIX_MESSAGE_BYTES - message);
    details->field.epoch = relative_epoch(details->field.epoch, word);
}

/* The complete copy first; the other only where a reader of the word needs it. */
static void make_slot_relative(struct pix_slot *slot, uint64_t word, bool wins)
{
    union details copy[2] = {{.field = details_in(slot, slot->sequence)}};
    make_details_relative(&copy[0], word);
    if (wins && copy[0].field.epoch != 0) {
        copy[1].field = details_in(slot, slot->sequence + 1);
        make_details_relative(&copy[1], word);
    }
    memcpy((void *)slot->details, copy, sizeof slot->details);
    memset(slot->session + slot->session_length, 0, PIX_SESSION_BYTES - slot->session_length);
    memset(slot->pane + slot->pane_length, 0, PIX_PANE_BYTES - slot->pane_length);
    slot->sequence = 0;
    slot->generation = 0;
}

static void make_relative(struct image *image, const struct image *from)
{
    uint64_t word = HEADER(from, summary);
    *image = (struct image){.header = {0}};
    take_what_tells_apart(image, from);
    HEADER(image, lock) = relative_lock(from);
    HEADER(image, summary) &= ~(EPOCH_MASK << PIX_SUMMARY_EPOCH);
    HEADER(image, revision) &= PIX_RETIRED_MASK;
    for (unsigned i = 0; i < WATCHED; i++) {
        unsigned slot = i < NEAR ? i : PIX_AGENTS + i - NEAR;
        bool wins = winner_in(word) == (int)slot;
        bool used = ((&HEADER(from, used))[slot / 64] & bit_of(slot)) != 0;
        if (!used && !wins) /* what its last owner left is nothing to anybody */
            continue;
        image->rank[i] = from->rank[i];
        memcpy((void *)&image->slot[i], (const void *)&from->slot[i], sizeof *image->slot);
        make_slot_relative(&image->slot[i], word, wins);
    }
}

static uint64_t mixed(uint64_t hash, uint64_t word, uint64_t factor)
{
    hash = (hash ^ word) * factor;
    return hash ^ hash >> 29;
}

struct key image_key(const struct image *image)
{
    static struct image relative;
    struct key key = {{0x9e3779b97f4a7c15, 0xd1b54a32d192ed03}};
    make_relative(&relative, image);
    for (size_t i = 0; i < sizeof relative / 8; i++) {
        uint64_t word;
        memcpy(&word, (const char *)&relative + i * 8, 8);
        key.word[0] = mixed(key.word[0], word, 0xff51afd7ed558ccd);
        key.word[1] = mixed(key.word[1], word, 0xc4ceb9fe1a85ec53);
    }
    return key;
}
