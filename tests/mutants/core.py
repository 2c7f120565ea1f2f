"""Mutants of the C core: each breaks one rule of ``csrc/pix_shm.h``.

Some rules have no mutant, because no test on x86-64 can notice. There the processor keeps stores in
their order, and loads in theirs, and each locked instruction is a full barrier; so ``release`` and
``acquire`` bind the compiler alone, and gcc leaves atomics where they stand. Without notice could
go: the fences of ``read_details`` and ``write_details``; that of ``sleep_a_slice``, which follows a
locked instruction; every ``release`` and ``acquire``, made ``relaxed``. The thread sanitizer does
not see them either: it knows no fences, and within one process the process mutex orders what the
lock word orders between processes. What can be shown is a load before a store, the one exchange
that x86 makes (the fence of ``lock_drop``), and stores in another order, or no longer in one piece.
"""

from __future__ import annotations

from mutants.mutant import Mutant

FORK = "csrc/fork.c"
LEASES = "csrc/leases.c"
LOCK = "csrc/lock.c"
REVISION = "csrc/revision.c"
SEGMENT = "csrc/segment.c"
SLOTS = "csrc/slots.c"
SYS = "csrc/sys.c"
INTERNAL = "csrc/internal.h"

# the atomic operations on which most rests
SWAP = """\
    return atomic_compare_exchange_strong_explicit(&segment->map->lock, &expected, desired,
                                                   memory_order_acq_rel, memory_order_relaxed);
"""
STORE_SUMMARY = """\
        !atomic_compare_exchange_strong_explicit(&map->summary, &previous,
                                                 lease_word(sum, previous), memory_order_release,
                                                 memory_order_relaxed))
        return PIX_RETIRED;
"""
STORE_REVISION = """\
    } while (!atomic_compare_exchange_weak_explicit(&map->revision, &now, next,
                                                    memory_order_release, memory_order_relaxed));
"""


def c(program: str, test: str) -> str:
    """One test of a C program."""
    return f"tests/core/test_units.py::test_core[{program}-{test}]"


FORKS = [
    Mutant(
        "the fork handlers are installed",
        FORK,
        "__attribute__((constructor)) static void install_fork_handlers",
        "__attribute__((unused)) static void install_fork_handlers",
        "tests/core/test_kills.py::test_fork_storm",
    ),
    Mutant(
        "no thread is inside the core when a child is made",
        FORK,
        "if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)",
        "if (before_fork == after_fork_in_parent ||"
        " pthread_atfork(NULL, NULL, after_fork_in_child))",
        "tests/core/test_kills.py::test_fork_storm",
    ),
    Mutant(
        "a child closes what it inherited",
        FORK,
        """    for (struct pix_segment *segment = handles; segment != NULL; segment = segment->next)
        segment_leave(segment);
""",
        "",
        c("leases", "a_forked_childs_handle_is_stale_and_its_exit_frees_nothing_of_its_parents"),
    ),
    Mutant(
        "the memory is mapped through a description of its own",
        SEGMENT,
        "(segment->map = sys_map(descriptor, PIX_SIZE)) == NULL",
        "(segment->map = sys_map(segment->descriptor, PIX_SIZE)) == NULL",
        "tests/core/test_kills.py::test_fork_storm",
    ),
    Mutant(
        "a handle that is closed is forgotten",
        SEGMENT,
        "    process_forget(segment);\n",
        "",
        "tests/core/test_sanitizers.py -k address-leases",
    ),
    Mutant(
        "no program that is executed inherits the descriptor",
        SYS,
        "    } while (descriptor < 0 && errno == EINTR);\n    return descriptor;",
        "    } while (descriptor < 0 && errno == EINTR);\n"
        "    if (descriptor >= 0)\n        (void)fcntl(descriptor, F_SETFD, 0);\n"
        "    return descriptor;",
        "tests/agents/test_deaths.py::test_b18_becoming_another_program",
    ),
]

TAKING = [
    Mutant(
        "whoever lets go of the lock looks for sleepers afterwards",
        LOCK,
        """    /* the other half of the bargain in sleep_a_slice */
    atomic_thread_fence(memory_order_seq_cst);
""",
        "",
        c("litmus", "nobody_sleeps_beside_a_free_lock"),
    ),
    Mutant(
        "whoever goes to sleep looks at the lock once more",
        LOCK,
        "    *taken = take_now(segment, mine);\n",
        "    *taken = mine == 0;\n",
        c("litmus", "nobody_sleeps_beside_a_free_lock"),
    ),
    Mutant(
        "the lock is taken and named in one",
        LOCK,
        SWAP,
        """    return atomic_compare_exchange_strong(&segment->map->lock, &expected, 0xffff) &&
           (atomic_store(&segment->map->lock, desired), true);
""",
        c("steps", "a_publish_shows_the_old_state_or_the_new"),
    ),
    Mutant(
        "of two who find the lock free one gets it",
        LOCK,
        SWAP,
        """    bool free = atomic_load(&segment->map->lock) == expected;
    return free && (atomic_store(&segment->map->lock, desired), true);
""",
        c("steps", "of_two_who_find_the_lock_free_one_gets_it"),
    ),
    Mutant(
        "the lock is stolen from the dead alone",
        LOCK,
        "if (!owner_is_dead(segment, word) || !swap(segment, word, mine))",
        "if (!swap(segment, word, mine))",
        c("lock", "a_stopped_holder_delays_and_is_not_robbed"),
    ),
    Mutant(
        "the lock is stolen from exactly the owner who was found dead",
        LOCK,
        "!swap(segment, word, mine))",
        "!swap(segment, atomic_load(&segment->map->lock), mine))",
        c("lock", "of_two_who_steal_one_gets_it"),
    ),
    Mutant(
        "an owner whose slot was claimed anew is dead",
        LOCK,
        "now << 16 != (word & ~UINT64_C(0xffff)) || slot_is_dead",
        "(now == 0 && word == 0) || slot_is_dead",
        c("lock", "a_stopped_newcomer_in_a_dead_holders_slot_wedges_nobody"),
    ),
    Mutant(
        "each claim has a generation of its own",
        SLOTS,
        "atomic_load_explicit(generation, memory_order_relaxed) + 1;",
        "atomic_load_explicit(generation, memory_order_relaxed);",
        c("lock", "a_stopped_newcomer_in_a_dead_holders_slot_wedges_nobody"),
    ),
    Mutant(
        "a newcomer without a generation does not pass for the owner",
        SLOTS,
        "byte == SYS_BYTE_FREE || byte == SYS_BYTE_EXCLUSIVE;",
        "byte == SYS_BYTE_FREE;",
        c("lock", "a_newcomer_stopped_with_nothing_but_a_dead_holders_byte_wedges_nobody"),
    ),
    Mutant(
        "one's own name in the lock is left over",
        LOCK,
        "slot >= PIX_SLOTS || slot_is_own(segment, slot)",
        "slot >= PIX_SLOTS",
        c("lock", "a_damaged_lock_word_is_recovered"),
    ),
    Mutant(
        "no slot is believed that the lock names",
        LOCK,
        "slot >= PIX_SLOTS || slot_is_own(segment, slot)",
        "slot_is_own(segment, slot)",
        c("lock", "a_damaged_lock_word_is_recovered"),
    ),
    Mutant(
        "recovery counts anew",
        LOCK,
        "    (void)lease_recount(segment); /* retired meanwhile: "
        "whoever called us finds that out as well */\n",
        "",
        c("lock", "a_dead_holder_is_recovered_by_a_commit"),
    ),
    Mutant(
        "recovery frees the dead",
        LOCK,
        "    slot_reap(segment);\n",
        "",
        c("lock", "a_dead_holder_is_recovered_by_a_commit"),
    ),
]

WAITING = [
    Mutant(
        "a live holder is given up after the promised time",
        LOCK,
        "        if (sys_clock_ns() >= deadline)\n            return PIX_BUSY;\n",
        "",
        c("waits", "a_live_holder_is_waited_for_until_the_promised_time"),
    ),
    Mutant(
        "the promised time is 50 ms",
        "csrc/pix_shm.h",
        "PIX_WAIT_MS = 50, ",
        "PIX_WAIT_MS = 60, ",
        c("waits", "a_live_holder_is_waited_for_until_the_promised_time"),
    ),
    Mutant(
        "the last slice ends with the wait",
        LOCK,
        "        if (until > deadline)\n            until = deadline;\n",
        "        (void)deadline;\n",
        c("waits", "a_live_holder_is_waited_for_until_the_promised_time"),
    ),
    Mutant(
        "no interruption begins the wait anew",
        LOCK,
        "        bool taken;\n        sleep_a_slice(",
        "        bool taken;\n        *deadline_ns = 0;\n        (void)deadline_of(deadline_ns);\n"
        "        sleep_a_slice(",
        c("waits", "b05_interruptions_do_not_prolong_the_wait"),
    ),
    Mutant(
        "both locks are waited for together",
        INTERNAL,
        "    if (*deadline_ns == 0)\n",
        "",
        c("waits", "both_locks_together_are_waited_for_until_the_promised_time"),
    ),
    Mutant(
        "a thread that stays inside is given up",
        FORK,
        "    uint64_t deadline = deadline_of(deadline_ns);\n    struct timespec",
        "    uint64_t deadline = deadline_of(deadline_ns) * 2;\n    struct timespec",
        c(
            "waits",
            "beside_a_thread_that_stays_inside_a_publish_gives_up_and_a_look_does_not_wait",
        ),
    ),
    Mutant(
        "a release does not wait",
        SLOTS,
        "    uint64_t deadline = 1; /* long past: not to be had at once",
        "    uint64_t deadline = 0; /* long past: not to be had at once",
        c("waits", "a_release_waits_for_nobody"),
    ),
    Mutant(
        "a look does not wait",
        LEASES,
        "    uint64_t deadline = 1; /* long past: do not wait",
        "    uint64_t deadline = 0; /* long past: do not wait",
        c(
            "waits",
            "beside_a_thread_that_stays_inside_a_publish_gives_up_and_a_look_does_not_wait",
        ),
    ),
    Mutant(
        "a sleeper is posted for",
        LOCK,
        "    if (waiting != 0 && segment->semaphore != NULL)\n",
        "    if (waiting == 0 && segment->semaphore == NULL)\n",
        c("lock", "a_waiter_is_posted_for"),
    ),
    Mutant(
        "without a sleeper nobody posts",
        LOCK,
        "    if (waiting != 0 && segment->semaphore != NULL)\n",
        "    if (waiting < 2 && segment->semaphore != NULL)\n",
        c("lock", "nobody_posts_while_nobody_waits"),
    ),
    Mutant(
        "posts do not pile up",
        SYS,
        "sem_getvalue(semaphore, &value) == 0 && value == 0",
        "sem_getvalue(semaphore, &value) == 0 && value >= 0",
        c("lock", "posts_do_not_pile_up"),
    ),
    Mutant(
        "who has slept is marked no more",
        LOCK,
        "    atomic_fetch_and_explicit(waiting, ~bit_of(slot), memory_order_relaxed);\n",
        "",
        c("lock", "a_stopped_holder_that_is_killed_is_recovered"),
    ),
    Mutant(
        "who died asleep is marked no more",
        LEASES,
        "    atomic_fetch_and_explicit(&map->waiting[slot / 64], ~bit_of(slot), "
        "memory_order_relaxed);\n",
        "",
        c("lock", "a_waiter_that_dies_leaves_no_mark"),
    ),
    Mutant(
        "the dead are looked for among the sleepers as well",
        SLOTS,
        """        uint64_t left = atomic_load_explicit(&map->used[i], memory_order_relaxed) |
                        atomic_load_explicit(&map->waiting[i], memory_order_relaxed);
""",
        "        uint64_t left = atomic_load_explicit(&map->used[i], memory_order_relaxed);\n",
        c("lock", "a_waiter_that_dies_leaves_no_mark"),
    ),
    Mutant(
        "somebody else's semaphore is not opened",
        SYS,
        "status.st_uid != geteuid() || ",
        "",
        c("lock", "a_semaphore_of_somebody_else_is_refused"),
    ),
    Mutant(
        "a semaphore that others may use is not opened",
        SYS,
        "(status.st_mode & 0077) != 0 ||",
        "",
        c("lock", "a_semaphore_that_others_may_use_is_refused"),
    ),
    Mutant(
        "an empty semaphore is not opened",
        SYS,
        " ||\n        status.st_size < (off_t)sizeof(sem_t))",
        ")",
        c("lock", "an_empty_semaphore_is_refused"),
    ),
]

SLOTS_AND_DEATHS = [
    Mutant(
        "one's own slots are not probed through one's own descriptor",
        SLOTS,
        "    if (slot_is_own(segment, slot))\n        return false;\n    enum",
        "    enum",
        c("leases", "a_claim_shows_who_it_is"),
    ),
    Mutant(
        "where the kernel cannot tell nobody is robbed",
        SLOTS,
        "byte == SYS_BYTE_FREE || byte == SYS_BYTE_EXCLUSIVE;",
        "byte != SYS_BYTE_SHARED;",
        c("lock", "where_the_kernel_cannot_tell_nobody_is_robbed"),
    ),
    Mutant(
        "a living agent's slot is not claimed",
        SLOTS,
        "if (sys_byte_lock(segment->descriptor, slot) == 0) {",
        "if (sys_byte_lock(segment->descriptor, slot) == 0 || pass == 1) {",
        c("leases", "a_thousand_agents_and_no_more"),
    ),
    Mutant(
        "a dead agent's slot is claimed where there is no other",
        SLOTS,
        "pass < 2; pass++",
        "pass < 1; pass++",
        c("leases", "a_table_full_of_ghosts_is_reclaimed"),
    ),
    Mutant(
        "a claim frees the dead",
        SLOTS,
        "        slot_reap(segment);\n",
        "",
        c("leases", "a_zombie_is_dead"),
    ),
    Mutant(
        "what the slot's last owner left does not count as the new one's",
        SLOTS,
        "        lease_clear(segment->map, slot);\n        slot_reap(segment);\n",
        "        slot_reap(segment);\n",
        c("leases", "a_rank_that_was_left_over_is_not_the_newcomers"),
    ),
    Mutant(
        "a claim looks whether the segment still has its name",
        SLOTS,
        "int result = segment_check(segment, true);",
        "int result = segment_check(segment, false);",
        c("segment", "one_that_was_moved_away_is_retired_too"),
    ),
    Mutant(
        "who is shown has said who it is",
        SLOTS,
        """    struct pix_slot *claimed = &segment->map->slot[slot];
    size_t session_length""",
        """    struct pix_slot *claimed = &segment->map->slot[slot];
    atomic_fetch_or(&segment->map->used[slot / 64], bit_of(slot));
    size_t session_length""",
        c("steps", "a_claim_shows_nobody_who_is_not_there_yet"),
    ),
    Mutant(
        "a name is cut at the size of its field",
        SLOTS,
        "return length < limit ? length : limit;",
        "return length > limit ? length : limit;",
        c("leases", "long_texts_are_cut"),
    ),
    Mutant(
        "a failed claim keeps no slot",
        SLOTS,
        "    if (result != PIX_OK) {\n        slot_let_go(segment, slot);\n        return result;",
        "    if (result != PIX_OK) {\n        return result;",
        c("lock", "a_stopped_holder_delays_and_is_not_robbed"),
    ),
    Mutant(
        "a release frees what is the handle's own, and nothing else",
        SLOTS,
        "slot < PIX_SLOTS &&\n        slot_is_own(segment, (unsigned)slot)",
        "slot < PIX_SLOTS",
        c("leases", "only_ones_own_slots_can_be_used"),
    ),
    Mutant(
        "a publish says something of the handle's own slots alone",
        LEASES,
        "slot >= PIX_AGENTS || !slot_is_own(segment, (unsigned)slot)",
        "slot >= PIX_AGENTS",
        c("leases", "only_ones_own_slots_can_be_used"),
    ),
    Mutant(
        "a release by a stale descriptor frees nothing",
        SLOTS,
        "segment_look(segment, false) != PIX_STALE && ",
        "",
        c("segment", "a_release_after_the_host_closed_the_descriptor_frees_nothing_of_others"),
    ),
    Mutant(
        "a released slot counts no more",
        SLOTS,
        "            lease_clear(segment->map, (unsigned)slot);\n",
        "",
        c("leases", "the_winner_is_the_last_opened_of_the_winning_kind"),
    ),
    Mutant(
        "a release counts anew",
        SLOTS,
        "            (void)lease_recount(segment); /* retired: nobody",
        "            (void)0; /* retired: nobody",
        c("leases", "the_winner_is_the_last_opened_of_the_winning_kind"),
    ),
    Mutant(
        "the dead are not among the living",
        SLOTS,
        "                live[i] &= ~bit_of(slot);\n",
        "                live[i] |= bit_of(slot);\n",
        c("leases", "a_zombie_is_dead"),
    ),
]

PUBLISHING = [
    Mutant(
        "details are written into the copy that is idle",
        LEASES,
        "    _Atomic uint64_t *copy = slot->details[sequence % 2];\n    /* The last",
        "    _Atomic uint64_t *copy = slot->details[(sequence - 1) % 2];\n    /* The last",
        c("leases", "publishing_says_everything"),
    ),
    Mutant(
        "details are complete before the copy is the one to read",
        LEASES,
        "    atomic_thread_fence(memory_order_release);\n    for",
        "    atomic_store(&slot->sequence, sequence);\n    for",
        c("steps", "a_publish_shows_the_old_state_or_the_new"),
    ),
    Mutant(
        "details say to which word they belong",
        LEASES,
        """    new->field.epoch =
        (uint32_t)epoch_after(atomic_load_explicit(&map->summary, memory_order_relaxed));
""",
        "",
        c("steps", "a_publish_shows_the_old_state_or_the_new"),
    ),
    Mutant(
        "details of a freed slot say to which word they belong",
        LEASES,
        ".epoch = (uint32_t)epoch_after(word)",
        ".epoch = (uint32_t)(word >> PIX_RETIRED_BIT)",
        c(
            "leases",
            "the_details_of_a_slot_that_was_freed_stay_or_are_newer_than_every_word_before",
        ),
    ),
    Mutant(
        "recovery leaves the details alone that the word stands for",
        LEASES,
        "    atomic_store_explicit(&map->rank[slot], 0, memory_order_relaxed);\n}\n",
        "    atomic_store_explicit(&map->rank[slot], 0, memory_order_relaxed);\n"
        "    lease_blank(map, slot);\n}\n",
        c("leases", "recovery_keeps_the_details_of_the_word_that_is_shown"),
    ),
    Mutant(
        "the heir of a slot announces nothing of its last owner",
        SLOTS,
        "    segment->generation[slot] = next;\n",
        "    segment->generation[slot] = next;\n    segment->own[slot / 64] |= bit_of(slot);\n",
        c("lock", "a_dead_holder_is_recovered_by_the_heir_of_its_slot"),
    ),
    Mutant(
        "the details come before the word",
        LEASES,
        "    write_details(&map->slot[slot], new, count);\n    atomic_store",
        "    (void)count;\n    atomic_store",
        c("leases", "publishing_says_everything"),
    ),
    Mutant(
        "the summary is stored at once",
        LEASES,
        STORE_SUMMARY,
        """        lease_word(sum, previous) == 0)
        return PIX_RETIRED;
    uint64_t word = lease_word(sum, previous);
    for (unsigned i = 0; i < 8; i++)
        ((volatile unsigned char *)&map->summary)[i] = (unsigned char)(word >> 8 * i);
""",
        c("steps", "a_publish_shows_the_old_state_or_the_new"),
    ),
    Mutant(
        "the summary is not cleared before it is stored",
        LEASES,
        """    if ((previous & PIX_RETIRED_MASK) != 0 ||
        !atomic""",
        """    if ((previous & PIX_RETIRED_MASK) == 0)
        *(volatile uint64_t *)&map->summary = previous = 0;
    if ((previous & PIX_RETIRED_MASK) != 0 ||
        !atomic""",
        c("steps", "a_publish_shows_the_old_state_or_the_new"),
    ),
    Mutant(
        "the summary is stored by an atomic operation",
        LEASES,
        STORE_SUMMARY,
        """        lease_word(sum, previous) == 0)
        return PIX_RETIRED;
    *(uint64_t *)(uintptr_t)&map->summary = lease_word(sum, previous);
""",
        "tests/core/test_sanitizers.py -k thread-threads",
    ),
    Mutant(
        "the details are stored by atomic operations",
        LEASES,
        "        atomic_store_explicit(&copy[i], details->word[i], memory_order_relaxed);\n",
        "        ((uint64_t *)(uintptr_t)copy)[i] = details->word[i];\n",
        "tests/core/test_sanitizers.py -k thread-threads",
    ),
    Mutant(
        "the mark of a retired segment is not stored over",
        LEASES,
        "    if ((previous & PIX_RETIRED_MASK) != 0 ||\n        !atomic",
        "    if (!atomic",
        c("segment", "publishing_in_a_removed_one_retires_it"),
    ),
    Mutant(
        "the mark of a retired segment is not stored over by one who was just storing",
        LEASES,
        STORE_SUMMARY,
        """        lease_word(sum, previous) == 0)
        return PIX_RETIRED;
    atomic_store(&map->summary, lease_word(sum, previous));
""",
        c("litmus", "a_publish_never_stores_over_the_mark_of_a_retired_segment"),
    ),
    Mutant(
        "every change has an epoch of its own",
        LEASES,
        "return ((word >> PIX_SUMMARY_EPOCH) + 1) & EPOCH_MASK;",
        "return (word >> PIX_SUMMARY_EPOCH) & EPOCH_MASK;",
        c("leases", "saying_it_again_changes_the_epoch_alone"),
    ),
    Mutant(
        "the epoch comes round within its bits",
        LEASES,
        "return ((word >> PIX_SUMMARY_EPOCH) + 1) & EPOCH_MASK;",
        "return (word >> PIX_SUMMARY_EPOCH) + 1;",
        c("leases", "the_epoch_comes_round_without_touching_its_neighbours"),
    ),
    Mutant(
        "counts are cut at the size of their bits",
        LEASES,
        "return count < PIX_COUNT_MAX ? count : PIX_COUNT_MAX;",
        "return count;",
        c("leases", "counts_stop_at_their_greatest_and_come_back"),
    ),
    Mutant(
        "blocks outrank activities",
        LEASES,
        "(blocks != 0 ? BLOCK_RANK : 0)",
        "0",
        c("leases", "the_winner_is_the_last_opened_of_the_winning_kind"),
    ),
    Mutant(
        "a winner that comes down is compared with all others",
        LEASES,
        "    if (winner == slot + 1) { /* it may",
        "    if (winner > PIX_SLOTS) { /* it may",
        c("leases", "the_winner_is_the_last_opened_of_the_winning_kind"),
    ),
    Mutant(
        "a freed slot ranks no more",
        LEASES,
        "    atomic_store_explicit(&map->rank[slot], 0, memory_order_relaxed);\n",
        "",
        c("leases", "a_claim_in_a_dead_agents_slot_begins_from_nothing"),
    ),
    Mutant(
        "a freed slot is used no more",
        LEASES,
        "    atomic_fetch_and_explicit(&map->used[slot / 64], ~bit_of(slot), "
        "memory_order_relaxed);\n",
        "",
        c("lock", "a_dead_holder_is_recovered_by_a_release"),
    ),
    Mutant(
        "a freed slot holds nothing",
        LEASES,
        "    write_details(&map->slot[slot], &nothing, PIX_DETAILS_WORDS);\n",
        "    (void)nothing;\n    (void)slot;\n",
        c("leases", "a_claim_in_a_dead_agents_slot_begins_from_nothing"),
    ),
    Mutant(
        "sums that cannot be are counted anew",
        LEASES,
        "    if (map->activities < activities || map->blocks < blocks)\n        return false;\n",
        "",
        c("leases", "sums_that_cannot_be_are_counted_anew"),
    ),
    Mutant(
        "an agent that was struck off counts again",
        LEASES,
        "if ((seen & bit_of(slot)) != 0 &&\n        sum_by_difference",
        "if (seen != 1 &&\n        sum_by_difference",
        c("damage", "an_agent_that_was_struck_off_comes_back"),
    ),
    Mutant(
        "the winner that the word names is not believed",
        LEASES,
        "    if (winner > PIX_SLOTS)\n        return false;\n",
        "",
        c("leases", "a_winner_beyond_all_slots_is_not_believed"),
    ),
    Mutant(
        "a message is cut at the size of its field",
        LEASES,
        "        message_length = PIX_MESSAGE_BYTES;\n",
        "        message_length = 2 * PIX_MESSAGE_BYTES;\n",
        c("leases", "long_texts_are_cut"),
    ),
    Mutant(
        "a lease change asks for the link count",
        LEASES,
        """    int result = segment_check(segment, false);
    if (result != PIX_OK)
        return result;
    result = lock_take""",
        "    int result = lock_take",
        c("segment", "publishing_in_a_removed_one_retires_it"),
    ),
    Mutant(
        "a lease change frees the dead once a second",
        LEASES,
        "    slot_reap(segment);\n    return lease_recount(segment);\n",
        "    return lease_recount(segment);\n",
        c("leases", "a_lease_change_frees_the_dead_within_its_interval"),
    ),
    Mutant(
        "a lease change looks for the name once a second",
        LEASES,
        "int result = segment_check(segment, true);",
        "int result = segment_check(segment, false);",
        c("segment", "a_lease_change_in_one_that_was_moved_away_retires_it_within_its_interval"),
    ),
]

LOOKING = [
    Mutant(
        "readers do not count the dead",
        LEASES,
        "                slots[i] &= ~bit_of(slot);\n",
        "                slots[i] |= bit_of(slot);\n",
        c("leases", "look_tells_the_sum_of_the_living_and_writes_nothing"),
    ),
    Mutant(
        "the dead who are idle are no ghosts",
        LEASES,
        "(&segment->map->rank[slot], memory_order_relaxed) != 0 &&",
        "(&segment->map->rank[slot], memory_order_relaxed) < UINT64_MAX &&",
        c("leases", "one_who_died_idle_is_no_ghost"),
    ),
    Mutant(
        "a dead holder's half-done work is not believed",
        LEASES,
        "if (lock_is_orphaned(segment) || (",
        "if ((",
        c("leases", "a_death_between_freeing_slots_and_summing_up_leaves_no_ghost"),
    ),
    Mutant(
        "readers write nothing",
        LEASES,
        "    int result = segment_look(segment, true);\n    if (result != PIX_OK)\n"
        "        return result;\n    /* acquire",
        "    int result = segment_check(segment, true);\n    if (result != PIX_OK)\n"
        "        return result;\n    /* acquire",
        c("segment", "looking_at_a_removed_one_marks_nothing"),
    ),
    Mutant(
        "readers look whether the segment still has its name",
        LEASES,
        "int result = segment_look(segment, true);",
        "int result = segment_look(segment, false);",
        c("segment", "one_that_was_moved_away_is_retired_too"),
    ),
    Mutant(
        "readers ask for the link count",
        SEGMENT,
        "return status.st_nlink > 0 && (",
        "return (",
        c("segment", "publishing_in_a_removed_one_retires_it"),
    ),
    Mutant(
        "whoever finds a removed segment retires it",
        SEGMENT,
        "        atomic_fetch_or_explicit(&segment->map->summary, PIX_RETIRED_MASK, "
        "memory_order_release);\n",
        "",
        c("segment", "publishing_in_a_removed_one_retires_it"),
    ),
    Mutant(
        "a descriptor that became another file's is noticed",
        SEGMENT,
        """           status->st_dev == segment->device && status->st_ino == segment->inode;
}

/* Does the name""",
        """           (status->st_dev == segment->device || status->st_ino != segment->inode);
}

/* Does the name""",
        c("segment", "a_descriptor_that_the_host_closed_is_noticed"),
    ),
]

REVISIONS = [
    Mutant(
        "the revision is stored at once",
        REVISION,
        STORE_REVISION,
        """        for (unsigned i = 0; i < 8; i++)
            ((volatile unsigned char *)&map->revision)[i] = (unsigned char)(next >> 8 * i);
    } while (false);
""",
        c("steps", "b21_a_revision_is_stored_at_once_and_before_the_identity"),
    ),
    Mutant(
        "the revision is not stored as two halves",
        REVISION,
        STORE_REVISION,
        """        volatile void *both = &map->revision;
        ((volatile uint32_t *)both)[1] = (uint32_t)(next >> 32);
        ((volatile uint32_t *)both)[0] = (uint32_t)next;
    } while (false);
""",
        c("steps", "b21_a_revision_is_stored_at_once_and_before_the_identity"),
    ),
    Mutant(
        "the revision is not cleared before it is stored",
        REVISION,
        "        next = make ? (now",
        "        *(volatile uint64_t *)&map->revision = 0;\n"
        "        *(volatile uint64_t *)&map->revision = now;\n"
        "        next = make ? (now",
        c("steps", "b21_a_revision_is_stored_at_once_and_before_the_identity"),
    ),
    Mutant(
        "the mark of a retired revision is not stored over by one who was just storing",
        REVISION,
        STORE_REVISION,
        "    } while (atomic_store(&map->revision, next), false);\n",
        c("litmus", "a_commit_never_stores_over_the_mark_of_a_retired_segment"),
    ),
    Mutant(
        "the identity comes after the revision",
        REVISION,
        "    int result = advance(map, make, known_revision, revision);\n",
        "    for (unsigned i = 0; i < IDENTITY_WORDS; i++)\n"
        "        atomic_store_explicit(&map->identity[i], identity[i], memory_order_relaxed);\n"
        "    int result = advance(map, make, known_revision, revision);\n",
        c("steps", "b21_a_revision_is_stored_at_once_and_before_the_identity"),
    ),
    Mutant(
        "one file is one revision, however many notice it",
        REVISION,
        "    bool make = !if_new || !is_known(map, identity);\n",
        "    bool make = !if_new || is_known(map, identity) || true;\n",
        c("leases", "many_that_notice_one_file_make_one_revision"),
    ),
    Mutant(
        "a revision is above what its maker knew",
        REVISION,
        "next = make ? (now > known_revision ? now : known_revision) + 1 : now;",
        "next = make ? now + 1 : now;",
        c("leases", "a_commit_makes_a_revision"),
    ),
    Mutant(
        "no known revision retires a segment",
        REVISION,
        "return known_revision < PIX_RETIRED_MASK - 1 ? known_revision : 0;",
        "return known_revision;",
        c("leases", "no_known_revision_can_retire_a_segment"),
    ),
    Mutant(
        "a claim raises a revision that went back",
        SLOTS,
        "            result = revision_raise(segment->map, known_revision);\n",
        "            result = known_revision == UINT64_MAX ? PIX_FULL : PIX_OK;\n",
        c("leases", "a_claim_raises_a_revision_that_went_back"),
    ),
    Mutant(
        "a claim is no change of the config",
        REVISION,
        "advance(map, revision < revision_believed(known_revision), ",
        "advance(map, revision != 0, ",
        c("leases", "a_claim_raises_a_revision_that_went_back"),
    ),
    Mutant(
        "a stopped holder keeps nobody from hearing of a change",
        REVISION,
        "if (result == PIX_BUSY || result == PIX_FULL || result == PIX_SYSTEM)",
        "if (result == PIX_FULL || result == PIX_SYSTEM)",
        c("lock", "a_stopped_holder_delays_and_is_not_robbed"),
    ),
    Mutant(
        "a visitor leaves its slot",
        REVISION,
        "    if (visitor)\n        slot_let_go(segment, (unsigned)slot);\n",
        "",
        c("leases", "a_visitor_is_not_shown_and_leaves_nothing"),
    ),
    Mutant(
        "a visitor takes no agent's slot",
        REVISION,
        "slot_seize(segment, PIX_AGENTS, PIX_SLOTS)",
        "slot_seize(segment, 0, PIX_AGENTS)",
        c("leases", "a_visitor_finds_room_beside_a_thousand_agents"),
    ),
]

OPENING = [
    Mutant(
        "the layout number is stored last",
        SEGMENT,
        "    map->magic = PIX_MAGIC;\n",
        "    atomic_store(&map->layout, PIX_LAYOUT);\n    map->magic = PIX_MAGIC;\n",
        c("steps", "the_layout_number_is_stored_last"),
    ),
    Mutant(
        "what an initialiser left is wiped",
        SEGMENT,
        "    memset((char *)map, 0, PIX_SIZE); /* whatever",
        "    memset((char *)map, 0, 8); /* whatever",
        c("segment", "what_an_initialiser_left_is_wiped"),
    ),
    Mutant(
        "a new segment begins with an epoch of its own",
        SEGMENT,
        "lease_word(&(struct lease_sum){0}, revision << PIX_SUMMARY_EPOCH)",
        "lease_word(&(struct lease_sum){0}, 0)",
        c("segment", "a_new_one_does_not_go_on_with_the_epoch_of_the_one_before"),
    ),
    Mutant(
        "the segment's memory is allocated",
        SYS,
        "error = posix_fallocate(descriptor, 0, (off_t)size);",
        "error = ftruncate(descriptor, (off_t)size) < 0 ? errno : 0;",
        c("segment", "full_memory_is_an_error_and_the_creator_leaves_nothing"),
    ),
    Mutant(
        "memory is there before it is touched",
        SEGMENT,
        "return status->st_size != 0 && status->st_blocks * 512 >= PIX_SIZE;",
        "return status->st_size != 0;",
        c("segment", "full_memory_under_a_hollow_file_is_an_error"),
    ),
    Mutant(
        "a creator that fails removes its file",
        SEGMENT,
        "if (result == PIX_SYSTEM && made)",
        "if (result == PIX_OK && made)",
        c("segment", "full_memory_is_an_error_and_the_creator_leaves_nothing"),
    ),
    Mutant(
        "who did not make the file does not remove it",
        SEGMENT,
        "if (result == PIX_SYSTEM && made)",
        "if (result == PIX_SYSTEM || made)",
        c("segment", "full_memory_leaves_what_others_made"),
    ),
    Mutant(
        "no link is followed",
        SYS,
        "        descriptor = shm_open(name, O_RDWR | O_NONBLOCK, 0);\n",
        "        char path[NAME_MAX];\n"
        '        (void)snprintf(path, sizeof path, SHM_DIRECTORY "%s", name);\n'
        "        descriptor = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);\n",
        c("segment", "symbolic_link"),
    ),
    Mutant(
        "a lease on somebody's file holds nobody up",
        SYS,
        "shm_open(name, O_RDWR | O_NONBLOCK, 0)",
        "shm_open(name, O_RDWR, 0)",
        "tests/agents/test_segment.py::test_somebody_elses_file_with_a_lease_on_it_holds_nobody_up",
    ),
    Mutant(
        "a file of somebody else's is refused",  # only root can give one away
        SEGMENT,
        "status->st_uid != sys_user() ||",
        "sys_user() == 4294967295 ||",
        c("segment", "foreign_owner"),
    ),
    Mutant(
        "a file that is not private is refused",
        SEGMENT,
        "(status->st_mode & 07777) != 0600",
        "(status->st_mode & 0600) != 0600",
        c("segment", "other_modes"),
    ),
    Mutant(
        "what is no regular file is refused",
        SEGMENT,
        "!S_ISREG(status->st_mode) || ",
        "",
        c("segment", "named_pipe"),
    ),
    Mutant(
        "a file of another size is refused",
        SEGMENT,
        "status->st_size < PIX_SIZE || ",
        "",
        c("segment", "unsuitable_sizes"),
    ),
    Mutant(
        "a larger file is accepted",
        SEGMENT,
        "status->st_size < PIX_SIZE || status->st_size % 4096 != 0",
        "status->st_size != PIX_SIZE",
        c("segment", "a_larger_one_is_accepted_and_keeps_its_size"),
    ),
    Mutant(
        "another magic is refused",
        SEGMENT,
        "map->magic == PIX_MAGIC && ",
        "",
        c("segment", "other_content_is_never_trusted"),
    ),
    Mutant(
        "another layout is refused",
        SEGMENT,
        "return layout == PIX_LAYOUT && ",
        "return ",
        c("segment", "other_content_is_never_trusted"),
    ),
    Mutant(
        "an unfinished segment is initialised by one",
        SEGMENT,
        "    if (sys_byte_lock(segment->descriptor, PIX_START_BYTE) < 0)\n",
        "    if (sys_byte_lock(segment->descriptor, PIX_START_BYTE) < 0 && errno == ENOLCK)\n",
        c("segment", "a_busy_initialiser_is_left_alone_and_a_dead_one_replaced"),
    ),
    Mutant(
        "what was finished meanwhile is taken as it is",
        SEGMENT,
        "    if (result == PIX_STARTING) { /* nobody was quicker */\n",
        "    if (result != PIX_MALFORMED) { /* nobody was quicker */\n",
        c("segment", "one_that_was_finished_meanwhile_is_taken_as_it_is"),
    ),
    Mutant(
        "what was removed meanwhile is not finished",
        SEGMENT,
        "if (!has_name(segment) || !is_ours(segment, &status)) {",
        "if (!is_ours(segment, &status)) {",
        c("segment", "one_that_was_removed_meanwhile_is_absent"),
    ),
    Mutant(
        "readers finish nothing",
        SEGMENT,
        "if (unsettled && role == PIX_READ)",
        "if (unsettled && role < PIX_JOIN)",
        c("segment", "a_reader_finishes_nothing_and_removes_nothing"),
    ),
    Mutant(
        "a retired segment loses its name",
        SEGMENT,
        "            (void)sys_shm_unlink(segment->name); /* failing,",
        "            (void)segment; /* failing,",
        c("segment", "a_retired_one_loses_its_name"),
    ),
    Mutant(
        "a descriptor that is another file's is not closed",
        SEGMENT,
        "    if (is_ours(segment, &status))\n        sys_close",
        "    if (is_ours(segment, &status) || segment->descriptor >= 0)\n        sys_close",
        c("segment", "a_descriptor_that_the_host_closed_is_noticed"),
    ),
]

MUTANTS = [
    *FORKS,
    *TAKING,
    *WAITING,
    *SLOTS_AND_DEATHS,
    *PUBLISHING,
    *LOOKING,
    *REVISIONS,
    *OPENING,
]
