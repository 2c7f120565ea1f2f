/* naive_semaphore.pml: what lock.pml is measured by, and what pix_shm does not do.
 *
 * A named semaphore is the lock, and who has it is recorded beside it, so that a waiter whose wait
 * ends without a post can look whether the owner is dead and take its place. SPIN must find both of
 * its faults:
 *
 *   - a wedge: whoever dies between taking the semaphore and recording it, or between erasing the
 *     record and posting, leaves it taken by nobody, and the others wait for ever;
 *   - a double entry: two waiters that both find the same owner dead both take its place.
 *
 * With EXACT a waiter takes the place by compare-and-swap of the record. That ends the double entry
 * and leaves the wedge.
 *
 * Steps, death and sleeping are written as in lock.pml. */

#ifndef PROCESSES
#define PROCESSES 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

byte semaphore = 1;
byte owner; /* process + 1, or 0 */
bool dead[PROCESSES];

byte inside; /* for the claim alone */
byte deaths;

mtype = { WAIT, RECORD, LOOK, REPLACE, WORK, ERASE, POST, END };

inline enter(next)
{
    assert(inside == 0);
    inside = me + 1;
    step = next
}

proctype process(byte me)
{
    mtype step = WAIT;
    byte seen;

    do
    /* sem_timedwait: posted for, or the time is over and there is something to be seen */
    :: d_step { step == WAIT && semaphore > 0 -> semaphore--; enter(RECORD) }
    :: d_step { step == WAIT && semaphore == 0 && owner != 0 && dead[owner - 1] -> step = LOOK }

    :: d_step { step == RECORD -> owner = me + 1; step = WORK }

    /* kill(owner, 0) */
    :: d_step { step == LOOK ->
        seen = owner;
        step = (seen != 0 && dead[seen - 1] -> REPLACE : WAIT) }

    :: d_step { step == REPLACE ->
        if
#ifdef EXACT
        :: owner == seen ->
#else
        :: true ->
#endif
            owner = me + 1;
            enter(WORK)
        :: else ->
            step = WAIT
        fi;
        seen = 0 }

    :: d_step { step == WORK -> step = ERASE }
    :: d_step { step == ERASE -> owner = 0; step = POST }
    :: d_step { step == POST -> inside = 0; semaphore++; step = END }
    :: d_step { step == END -> step = 0 } -> break

    :: d_step { step != END && deaths < DEATHS ->
        deaths++;
        dead[me] = true;
        if
        :: inside == me + 1 -> inside = 0
        :: else
        fi;
        step = 0;
        seen = 0 } -> break
    od
}

init
{
    byte i;
    atomic {
        for (i : 0 .. PROCESSES - 1) {
            run process(i)
        }
    }
}
