/* lock.pml: the lock word, the slots' bytes and the sum, as a model that SPIN searches to its end.
 *
 * WHAT IS CLAIMED, of every interleaving of so many processes, deaths and stops as are set below:
 *
 *   - never are two living owners inside (`enter`), however long either of them is paused;
 *   - whoever finds the lock free finds the sum right (`swap_free`), and whoever takes it from a
 *     dead owner makes it so before doing anything else (STORE_SUMMARY);
 *   - an agent finds in its slot what it put there, and nothing of the slot's last owner
 *     (WRITE_DETAILS);
 *   - every process that lives and is not stopped does all that it has to do, whoever died where:
 *     no state but the last one is without a next (see "Sleeping"). One that is stopped delays
 *     nobody, unless it is inside;
 *   - when all have ended, one more newcomer gets in, and then the lock is free, the sum is that of
 *     the living, and nothing is left of the dead (AUDIT).
 *
 * HOW IT IS WRITTEN. A process is a loop over atomic steps; `step` says which one is next. A step
 * is one access to what is shared (a load, a store, a compare-and-swap, a system call), and is
 * headed by the C that it stands for: file, function and statement. test_model.py sees to it that
 * the function has that statement. What only whoever is inside may touch is read together with the
 * next access: nobody else could have changed it meanwhile, as the first claim says.
 *
 * Death may come before every step: the kernel frees the byte, and the segment stays as it is. A
 * pause needs no step of its own: the others take theirs. A stop is a pause without end, in which
 * the byte stays taken.
 *
 * Sleeping. A slice of sleep ends by itself, so a waiter goes round in circles for as long as the
 * owner lives. Here a slice for which nobody posts ends once what the waiter last looked at has
 * changed: to look again earlier leads back to the same state. A waiter that would look in vain for
 * ever is then blocked, which SPIN reports as an invalid end state. Nothing else repeats itself, so
 * there is no cycle at all (a search of its own says so) and every process comes to an end. With
 * POLLING the waiters do go round, and the claim is one in LTL, under weak fairness.
 *
 * WHAT IS NOT MODELLED. Weak memory: SPIN's memory is sequentially consistent, so it is not decided
 * here whether the orders named in the C suffice (LATE_GENERATION shows the one reordering that
 * the release in `swap` is there to forbid). Threads and forks: the process mutex lets one thread
 * in, and a child closes its copies. Damage, retired segments, errors of the kernel. Readers, and
 * with them the second copy of the details, epochs, ranks, the winner, the revision, and the word
 * on which they sleep. Handles with several slots. Which slot slot_seize prefers: here it takes any
 * that is free, as from a table of any fullness. How often lock_take spins: once is as good. Time:
 * any moment is late enough to give up.
 *
 * WHAT CAN BE SET is below. What can be broken, and what is then found, is in run.py. */

#ifndef WORKERS
#define WORKERS 2 /* who have a slot from the start */
#endif
#ifndef NEWCOMERS
#define NEWCOMERS 1 /* who claim one */
#endif
#ifndef VISITORS
#define VISITORS 0 /* who take the visitors' slot for one commit */
#endif
#ifndef AGENTS
#define AGENTS 2 /* slots for workers and newcomers */
#endif
#ifndef PUBLISHES
#define PUBLISHES 1 /* by each worker and newcomer */
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef STOPS
#define STOPS 0
#endif

#define PROCESSES (WORKERS + NEWCOMERS + VISITORS) /* and one that comes last */

/* One slot for the visitors, if there are any, and one for whoever comes last. */
#if VISITORS > 0
#define SLOTS (AGENTS + 2)
#else
#define SLOTS (AGENTS + 1)
#endif

#define BIT(n) (1 << (n))
#define NAME(generation, slot) ((generation) * 8 + (slot) + 1)
#define SLOT_OF(word) ((word) % 8 - 1)
#define GENERATION_OF(word) ((word) / 8)

/* ---- what is shared ----------------------------------------------------------------------- */

/* struct pix_layout */
byte lock; /* 0, or the name of the owner */
byte generation[SLOTS];
byte waiting; /* a bit for each slot */
byte used;    /* likewise */
byte count[SLOTS]; /* details: how much the slot's owner holds */
byte activities;   /* the sum of the counts */
byte summary;      /* likewise, for readers */

byte semaphore;

/* The kernel: who has the byte of each slot (process + 1, or 0), and which of the bytes are locked
 * exclusively. */
byte holder[SLOTS];
byte exclusive;

/* For the claims alone: no process looks at these. */
byte inside; /* process + 1 of the living owner, or 0 */
byte deaths;
byte stops;
byte ended;

/* ---- looking at it ------------------------------------------------------------------------ */

#define IS_VACANT(n) (holder[n] == 0 || (exclusive & BIT(n)) != 0)

#ifdef ROB_THE_LIVING
#define IS_DEAD(n) true
#else
#define IS_DEAD(n) IS_VACANT(n)
#endif

#ifdef IGNORE_GENERATION
#define IS_NEWER(word) false
#else
#define IS_NEWER(word) (generation[SLOT_OF(word)] != GENERATION_OF(word))
#endif

/* The slots that a role may seize: [FIRST, LIMIT). */
#define FIRST (role == LAST -> SLOTS - 1 : (role == VISITOR -> AGENTS : 0))
#define LIMIT (role == LAST -> SLOTS : (role == VISITOR -> AGENTS + 1 : AGENTS))
#define MAY_SEIZE(n) (holder[n] == 0 && n >= FIRST && n < LIMIT)

#define COUNTED(n) ((used & BIT(n)) != 0 -> count[n] : 0)
#define IS_TIDY(n) (((used | waiting) & BIT(n)) == 0 || !IS_VACANT(n))

/* Slot by slot, as a step has no loop. */
#if SLOTS == 2
#define SUM(of) (of(0) + of(1))
#define ALL(are) (are(0) && are(1))
#define ANY(is) (is(0) || is(1))
#define LOWEST(bits) ((bits) & 1 -> 0 : 1)
#elif SLOTS == 3
#define SUM(of) (of(0) + of(1) + of(2))
#define ALL(are) (are(0) && are(1) && are(2))
#define ANY(is) (is(0) || is(1) || is(2))
#define LOWEST(bits) ((bits) & 1 -> 0 : ((bits) & 2 -> 1 : 2))
#elif SLOTS == 4
#define SUM(of) (of(0) + of(1) + of(2) + of(3))
#define ALL(are) (are(0) && are(1) && are(2) && are(3))
#define ANY(is) (is(0) || is(1) || is(2) || is(3))
#define LOWEST(bits) ((bits) & 1 -> 0 : ((bits) & 2 -> 1 : ((bits) & 4 -> 2 : 3)))
#endif

/* The slot is an agent's that was introduced. Until then its owner takes its own byte for free, as
 * a probe through the same descriptor sees no lock. */
#define IS_OWN(n) (n == slot && operation != CLAIM && operation != COMMIT)
#define IS_LEFT(n) (!IS_OWN(n) && (n == slot || IS_DEAD(n)))

#define IS_RIGHT (activities == SUM(COUNTED) && summary == SUM(COUNTED))

/* ---- processes ---------------------------------------------------------------------------- */

mtype = { WORKER, NEWCOMER, VISITOR, LAST };

mtype = { CLAIM, PUBLISH, LOOK_AROUND, RELEASE, COMMIT };

mtype = {
    CHOOSE,
    SEIZE, STORE_GENERATION, SHARE,
    TAKE, TAKE_SWAP, LOAD, LOAD_SWAP, CHECK_GENERATION, PROBE, STEAL, CHECK_TIME,
    MARK, AGAIN, AGAIN_SWAP, SLEEP, UNMARK, UNMARK_INSIDE,
    REAP, REAP_NEXT, CLEAR_USED, CLEAR_WAITING,
    RECOUNT, STORE_SUM, STORE_SUMMARY,
    BLANK, INTRODUCE, WRITE_DETAILS, ADVANCE,
    DROP, LOOK_FOR_WAITERS, GET_VALUE, POST,
    LET_GO, AUDIT, END
};

/* With what an operation begins once it is inside, and goes on once it is outside again. */
#define INSIDE (operation == CLAIM || operation == RELEASE -> CLEAR_USED : \
                (operation == PUBLISH -> WRITE_DETAILS : ADVANCE))
#define OUTSIDE (operation == RELEASE || operation == COMMIT -> LET_GO : \
                 (role == LAST -> AUDIT : CHOOSE))

inline enter()
{
    assert(inside == 0);
    inside = me + 1;
    lock = mine;
    word = 0;
    target = slot /* of lease_clear, if the operation begins with one */
}

/* lock.c, swap: atomic_compare_exchange_strong_explicit(&segment->map->lock, &expected, desired, */
inline swap_free(had, refused)
{
    if
    :: lock == 0 ->
        assert(IS_RIGHT);
        enter();
        step = had
    :: else ->
        step = refused
    fi
}

/* slots.c, slot_seize: sys_byte_lock(segment->descriptor, slot) == 0 */
inline seize(n)
{
    holder[n] = me + 1;
#ifndef ALWAYS_SHARED
    exclusive = exclusive | BIT(n);
#endif
    slot = n;
    step = STORE_GENERATION
}

/* leases.c, store_sum: atomic_compare_exchange_strong_explicit(&map->summary, &previous, */
inline store_summary(next)
{
    summary = total;
    total = 0;
    step = next
}

/* Nothing is left that would tell one end from another. */
inline forget()
{
    ended++;
    step = 0;
    operation = 0;
    slot = 0;
    mine = 0;
    word = 0;
    left = 0;
    target = 0;
    total = 0;
    holds = 0;
    published = 0;
    recovering = false;
    reaping = false
}

proctype process(byte me; mtype role)
{
    mtype step;
    mtype operation;
    byte slot;
    byte mine;       /* name_of(segment, slot) */
    byte word;       /* what lock_take last read */
    byte left;       /* what slot_reap has yet to look at */
    byte target;     /* the slot that lease_clear clears */
    byte total;      /* what store_sum stores */
    byte holds;      /* what this agent last published, as it knows itself */
    byte published;  /* how often it did or tried to */
    bool recovering; /* inside steal; the operation itself comes after */
    bool reaping;    /* inside slot_reap */
#ifdef LATE_GENERATION
    bool late; /* the generation is stored, and others do not see it yet */
#endif

    d_step {
        role != LAST || ended == PROCESSES ->
        if
        :: role == WORKER ->
            slot = me;
            mine = NAME(1, me);
            step = CHOOSE
        :: role == NEWCOMER || role == LAST ->
            operation = CLAIM;
            step = SEIZE
        :: role == VISITOR ->
            operation = COMMIT;
            step = SEIZE
        fi
    }

    do
    /* ---- what an agent does: publish, then release its slot or keep it ------------------- */

    :: d_step { step == CHOOSE && published < PUBLISHES ->
        published++;
        operation = PUBLISH;
        step = TAKE }

    :: d_step { step == CHOOSE && published == PUBLISHES -> operation = RELEASE; step = TAKE }

    :: d_step { step == CHOOSE && published == PUBLISHES -> step = END }

    /* ---- a slot -------------------------------------------------------------------------- */

    :: d_step { step == SEIZE && MAY_SEIZE(0) -> seize(0) }
    :: d_step { step == SEIZE && MAY_SEIZE(1) -> seize(1) }
#if SLOTS > 2
    :: d_step { step == SEIZE && MAY_SEIZE(2) -> seize(2) }
#endif
#if SLOTS > 3
    :: d_step { step == SEIZE && MAY_SEIZE(3) -> seize(3) }
#endif

    /* slots.c, slot_seize: return PIX_FULL; */
    :: d_step { step == SEIZE && !ANY(MAY_SEIZE) -> assert(role != LAST); step = END }

    /* slots.c, begin_generation: atomic_store_explicit(generation, next, memory_order_release); */
    :: d_step { step == STORE_GENERATION ->
        mine = NAME(generation[slot] + 1, slot);
#ifdef LATE_GENERATION
        late = true;
#else
        generation[slot] = generation[slot] + 1;
#endif
        step = SHARE }

#ifdef LATE_GENERATION
    :: d_step { late -> late = false; generation[slot] = generation[slot] + 1 }
#endif

    /* slots.c, begin_generation: sys_byte_share(segment->descriptor, slot) == 0; */
    :: d_step { step == SHARE -> exclusive = exclusive & ~BIT(slot); step = TAKE }

    /* ---- the lock ------------------------------------------------------------------------ */

    /* lock.c, take_now: atomic_load_explicit(&segment->map->lock, memory_order_relaxed) == 0 */
    :: d_step { step == TAKE -> step = (lock == 0 -> TAKE_SWAP : LOAD) }

    /* lock.c, take_now: swap(segment, 0, mine); */
    :: d_step { step == TAKE_SWAP -> swap_free(INSIDE, LOAD) }

    /* lock.c, lock_take: word = atomic_load_explicit(&segment->map->lock, memory_order_acquire);
     * lock.c, owner_is_dead: slot_is_own(segment, slot) */
    :: d_step { step == LOAD ->
        word = lock;
        if
        :: word == 0 -> step = LOAD_SWAP
        :: else ->
            assert(!IS_OWN(SLOT_OF(word)));
            step = CHECK_GENERATION
        fi }

    /* lock.c, lock_take: word == 0 ? swap(segment, 0, mine) */
    :: d_step { step == LOAD_SWAP -> swap_free(INSIDE, CHECK_TIME) }

    /* lock.c, owner_is_dead: now << 16 != (word & ~UINT64_C(0xffff)) */
    :: d_step { step == CHECK_GENERATION -> step = (IS_NEWER(word) -> STEAL : PROBE) }

    /* slots.c, slot_is_dead: byte == SYS_BYTE_FREE || byte == SYS_BYTE_EXCLUSIVE; */
    :: d_step { step == PROBE -> step = (IS_LEFT(SLOT_OF(word)) -> STEAL : CHECK_TIME) }

    /* lock.c, steal: !swap(segment, word, mine) */
    :: d_step { step == STEAL ->
        if
#ifdef STEAL_ANY
        :: true ->
#else
        :: lock == word ->
#endif
            enter();
            recovering = true;
            step = REAP
        :: else ->
            step = CHECK_TIME
        fi }

    /* lock.c, lock_take: sys_clock_ns() >= deadline
     * slots.c, pix_release: deadline = 1; */
    :: d_step { step == CHECK_TIME && operation != RELEASE -> step = MARK }

    /* lock.c, lock_take: return PIX_BUSY; */
    :: d_step { step == CHECK_TIME && role != LAST ->
        word = 0;
        step = (operation == PUBLISH -> CHOOSE : LET_GO) }

    /* lock.c, sleep_a_slice: atomic_fetch_or_explicit(waiting, bit_of(slot), */
#ifdef NO_SECOND_LOOK
    :: d_step { step == MARK -> waiting = waiting | BIT(slot); step = SLEEP }
#else
    :: d_step { step == MARK -> waiting = waiting | BIT(slot); step = AGAIN }
#endif

    /* lock.c, sleep_a_slice: *taken = take_now(segment, mine); */
    :: d_step { step == AGAIN -> step = (lock == 0 -> AGAIN_SWAP : SLEEP) }
    :: d_step { step == AGAIN_SWAP -> swap_free(UNMARK_INSIDE, SLEEP) }

    /* sys.c, sys_sem_wait_until: sem_clockwait(semaphore, CLOCK_MONOTONIC, &deadline); */
    :: d_step { step == SLEEP && semaphore > 0 -> semaphore--; word = 0; step = UNMARK }
#ifdef POLLING
    :: d_step { step == SLEEP -> word = 0; step = UNMARK }
#endif
#ifndef NO_TIMEOUT
    :: d_step { step == SLEEP &&
                (word == 0 || lock != word || IS_NEWER(word) || IS_LEFT(SLOT_OF(word))) ->
        word = 0;
        step = UNMARK }
#endif

    /* lock.c, sleep_a_slice: atomic_fetch_and_explicit(waiting, ~bit_of(slot), */
    :: d_step { step == UNMARK -> waiting = waiting & ~BIT(slot); step = TAKE }
    :: d_step { step == UNMARK_INSIDE -> waiting = waiting & ~BIT(slot); step = INSIDE }

    /* ---- inside: the dead, and the sum --------------------------------------------------- */

    /* slots.c, slot_reap: left = atomic_load_explicit(&map->used[i], memory_order_relaxed) | */
    :: d_step { step == REAP ->
        reaping = true;
        left = used | waiting;
        step = REAP_NEXT }

    /* slots.c, slot_reap: slot_is_dead(segment, slot) */
    :: d_step { step == REAP_NEXT && left != 0 ->
        target = LOWEST(left);
        left = left & ~BIT(target);
        if
        :: IS_LEFT(target) -> step = CLEAR_USED
        :: else
        fi }

    :: d_step { step == REAP_NEXT && left == 0 ->
        reaping = false;
        target = slot;
#ifdef NO_RECOUNT
        step = (recovering -> INSIDE : RECOUNT);
        recovering = false
#else
        step = RECOUNT
#endif
        }

    /* leases.c, lease_clear: atomic_fetch_and_explicit(&map->used[slot / 64], ~bit_of(slot), */
    :: d_step { step == CLEAR_USED -> used = used & ~BIT(target); step = CLEAR_WAITING }

    /* leases.c, lease_clear: atomic_fetch_and_explicit(&map->waiting[slot / 64], ~bit_of(slot), */
    :: d_step { step == CLEAR_WAITING ->
        waiting = waiting & ~BIT(target);
        step = (reaping -> REAP_NEXT : (operation == RELEASE -> RECOUNT : REAP)) }

    /* leases.c, lease_recount: sum = lease_sum(segment->map, used); */
    :: d_step { step == RECOUNT -> target = 0; total = SUM(COUNTED); step = STORE_SUM }

    /* leases.c, store_sum: map->activities = sum->activities; */
    :: d_step { step == STORE_SUM -> activities = total; step = STORE_SUMMARY }

    :: d_step { step == STORE_SUMMARY && recovering ->
        target = slot;
        recovering = false;
        store_summary(INSIDE);
        assert(IS_RIGHT) }

    :: d_step { step == STORE_SUMMARY && !recovering ->
#ifdef EARLY_LET_GO
        if
        :: operation == RELEASE -> holder[slot] = 0
        :: else
        fi;
#endif
        store_summary((operation == CLAIM -> BLANK : DROP)) }

    /* leases.c, change: result = look_around(segment, now); */
    :: d_step { step == STORE_SUMMARY && !recovering && operation == PUBLISH ->
        operation = LOOK_AROUND;
        store_summary(REAP) }

    /* ---- inside: the operations ---------------------------------------------------------- */

    /* leases.c, lease_blank: write_details(&map->slot[slot], &nothing, PIX_DETAILS_WORDS); */
    :: d_step { step == BLANK ->
#ifndef NO_BLANK
        count[slot] = 0;
#endif
        step = INTRODUCE }

    /* slots.c, introduce: atomic_fetch_or_explicit(&segment->map->used[slot / 64], bit_of(slot), */
    :: d_step { step == INTRODUCE -> used = used | BIT(slot); step = DROP }

    /* leases.c, publish: write_details(&map->slot[slot], new, count);
     * leases.c, sum_by_difference: map->activities - activities + new->activities; */
    :: d_step { step == WRITE_DETAILS ->
        assert((used & BIT(slot)) != 0 && count[slot] == holds && activities >= holds);
        target = 0;
        count[slot] = holds + 1;
        total = activities - holds + count[slot];
        holds = count[slot];
#ifdef EARLY_DROP
        lock = 0;
        inside = 0;
#endif
        step = STORE_SUM }

    /* revision.c, commit: advance(map, make, known_revision, revision); */
    :: d_step { step == ADVANCE -> target = 0; step = DROP }

    /* ---- outside again ------------------------------------------------------------------- */

    /* lock.c, lock_drop: atomic_store_explicit(&map->lock, 0, memory_order_release); */
    :: d_step { step == DROP -> lock = 0; inside = 0; step = LOOK_FOR_WAITERS }

    /* lock.c, lock_drop: waiting |= atomic_load_explicit(&map->waiting[i], */
    :: d_step { step == LOOK_FOR_WAITERS -> step = (waiting != 0 -> GET_VALUE : OUTSIDE) }

    /* sys.c, sys_sem_post_if_zero: sem_getvalue(semaphore, &value) == 0 && value == 0 */
    :: d_step { step == GET_VALUE -> step = (semaphore == 0 -> POST : OUTSIDE) }

    /* sys.c, sys_sem_post_if_zero: sem_post(semaphore); */
    :: d_step { step == POST -> semaphore++; step = OUTSIDE }

    /* slots.c, slot_let_go: sys_byte_unlock(segment->descriptor, slot); */
    :: d_step { step == LET_GO -> holder[slot] = 0; step = END }

    :: d_step { step == AUDIT ->
        assert(inside == 0 && lock == 0 && IS_RIGHT && ALL(IS_TIDY));
        step = END }

    :: d_step { step == END -> forget() } -> break

    /* ---- death, and stops ---------------------------------------------------------------- */

    :: d_step { step != END && role != LAST && deaths < DEATHS ->
#ifdef NO_DEATH_IN_RECOVERY
        assert(!recovering);
#endif
#ifdef NO_DEATH_IN_CLAIM
        assert(operation != CLAIM || inside != me + 1 || recovering);
#endif
        deaths++;
        if
        :: holder[slot] == me + 1 ->
            holder[slot] = 0;
            exclusive = exclusive & ~BIT(slot);
#ifdef LATE_GENERATION
            generation[slot] = generation[slot] + late;
            late = false
#endif
        :: else
        fi;
        if
        :: inside == me + 1 -> inside = 0
        :: else
        fi;
        forget() } -> break

#if STOPS > 0
    :: d_step { step != END && role != LAST && stops < STOPS && inside != me + 1 ->
        stops++;
        forget() } -> break
#endif
    od
}

init
{
    byte i;
    atomic {
        for (i : 0 .. WORKERS - 1) {
            generation[i] = 1;
            holder[i] = i + 1;
            used = used | BIT(i);
            run process(i, WORKER)
        }
        for (i : WORKERS .. WORKERS + NEWCOMERS - 1) {
            run process(i, NEWCOMER)
        }
#if VISITORS > 0
        for (i : WORKERS + NEWCOMERS .. PROCESSES - 1) {
            run process(i, VISITOR)
        }
#endif
        run process(PROCESSES, LAST)
    }
}

#ifdef POLLING
ltl all_come_to_their_end { <> (ended == PROCESSES + 1) }
#endif
