"""Section 4: a segment that was damaged is a segment that may lie. Whatever is in it, before one
attaches or at any moment after that, nothing raises, hangs or dies, and every answer is of its
type. ``tests/core/c/damage.c`` does the same to the core, by the ten thousand.
"""

from __future__ import annotations

import random
from pathlib import Path

from agents.support import PROMISE, path_of, start_agent, words_of
from processes import Processes, eventually, remove_segment

import pix_shm
from pix_shm import State

# What a damaged segment is asked, and what kind of answers there must be. Damage is at twenty
# levels: one bit, then 1, 2, 4 ... words, then everything; half of it where it matters.
_ASK = """
import logging, mmap, random, warnings
warnings.simplefilter("ignore")
logging.disable()
LEVELS = 20
SUMMARY = 16
NASTY = [0, 1, 2**64 - 1, 2**63 - 1, 2**63, 2**32 - 1, 0xffff, 0x7ff << 32, 1025 << 32,
         1 << 16 | 1, 0xffff << 48 | 3, 1024, 1 << 63 | 1 << 16, 0x7ff << 32 | 1, 1001 << 32 | 1]
def damage(words, dice, level):
    if level == 0:
        words[dice.choice((dice.randrange(1600), dice.randrange(len(words))))] ^= (
            1 << dice.randrange(64))
    elif level == LEVELS - 1:
        words[:] = memoryview(dice.randbytes(len(words) * 8)).cast("Q")
    else:
        hits = 1 << (level - 1)
        if hits > 512:  # most of them in a row
            at = dice.randrange(len(words) - hits + 1)
            words[at:at + hits] = memoryview(dice.randbytes(hits * 8)).cast("Q")
        for _ in range(min(hits, 512)):
            at = dice.choice((dice.randrange(8, 64), dice.randrange(1600), dice.randrange(1600),
                              dice.randrange(len(words))))
            words[at] = dice.choice((dice.choice(NASTY), dice.getrandbits(64)))
def check_state(state):
    assert type(state) is pix_shm.State, state
    assert state.state in {"idle", "working", "blocked"}, state
    assert 0 <= state.activities <= 65535 and 0 <= state.blocks <= 65535, state
    assert state.message is None or type(state.message) is str, state
    assert len(state.message or "") <= 256, state
def check_agents(agents):
    assert type(agents) is tuple and len(agents) <= 1024, agents
    for info in agents:
        numbers = info.pid, info.activities, info.blocks, info.since
        texts = info.session, info.pane, info.message or "", info.source or ""
        assert [type(each) for each in numbers] == [int, int, int, float], info
        assert all(each >= 0 for each in numbers), info
        assert [type(each) for each in texts] == [str] * 4, info
        assert all(len(t) <= limit for t, limit in zip(texts, (64, 32, 256, 64))), info
        assert info.state in {"idle", "working", "blocked"}, info
def ask():
    check_state(pix_shm.state())
    check_agents(pix_shm.agents())
    revision = pix_shm.revision()
    assert type(revision) is int and 0 <= revision < 2**63, revision
def use(agent):
    with pix_shm.begin_agent_activity(agent.events, "tool", "building"):
        lease = pix_shm.begin_agent_block(agent.events, "ask", "Proceed?")
        ask()
        assert agent.state() == pix_shm.State(1, 1, "Proceed?")
        lease()
    assert agent.state() == pix_shm.State(0, 0, None)
def mapped(path):
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 1 << 20)).cast("Q")
"""


def test_a_newcomer_to_a_damaged_segment(
    agent_dir: Path, processes: Processes, tmp_path: Path
) -> None:
    """Section 4: 20 levels, 20 seeds each, each seed in a process that knows nothing yet: it reads,
    attaches, and opens leases.
    """
    dead, living = start_agent(processes, "dead"), start_agent(processes, "living")
    for agent in (dead, living):
        agent.ask("work('tool', 'building')")
        agent.ask("block('ask', 'Proceed?')")
    dead.kill()
    dead.wait()
    (tmp_path / "image").write_bytes(path_of(agent_dir).read_bytes())
    child = processes.start(
        _ASK
        + """
image = open(sys.argv[2], "rb").read()
path = sys.argv[1]
pix_shm.attach, pix_shm.state  # loaded, and nothing used
failed = []
for number in range(20 * LEVELS):
    try:  # as it was; it may have lost its name, or have been made anew
        words = mapped(path)
    except OSError:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        os.truncate(path, 1 << 20)
        words = mapped(path)
    words[:] = memoryview(image).cast("Q")
    dice = random.Random(number)
    damage(words, dice, number % LEVELS)
    if dice.random() < 0.5:
        words[:2] = memoryview(image).cast("Q")[:2]  # it says that it is one of ours
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            if dice.random() < 0.5:
                ask()
            with pix_shm.attach() as agent:
                use(agent)
                with pix_shm.attach(session="second") as second:
                    use(second)
            ask()
            os._exit(0)
        finally:
            import traceback
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        failed.append((number, status))
say(failed)
""",
        path_of(agent_dir),
        tmp_path / "image",
    )
    assert child.hear() == "[]"
    assert child.finish() == ""


def test_damage_under_a_running_reader_and_a_running_agent(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: live words are flipped under them all the time. Once the segment is gone, all is
    well.
    """
    others = [start_agent(processes, str(number)) for number in range(2)]
    reader, agent = (
        processes.start(_ASK + code)
        for code in (
            """
rounds = 0
pix_shm.state()
say("ready")
until = time.monotonic() + 1.2
while time.monotonic() < until:
    ask()
    rounds += 1
say(rounds > 10)
hear()
""",
            """
rounds = 0
agent = pix_shm.attach(session="agent")
say("ready")
until = time.monotonic() + 1.2
while time.monotonic() < until:
    use(agent)
    rounds += 1
say(rounds > 10)
hear()
with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
    say("blocked")
    hear()
""",
        )
    )
    children = [reader, agent]
    damager = processes.start(
        _ASK
        + """
dice = random.Random(28)
while True:
    try:  # the one that has the name now: damage makes them leave one for another
        words = mapped(sys.argv[1])
    except (OSError, ValueError):  # just being made
        continue
    first = words[:2].tolist()
    for _ in range(10):
        damage(words, dice, dice.randrange(6))
        words[0], words[1] = first
        words[SUMMARY] &= 2**63 - 1
        words[SUMMARY + 1] &= 2**63 - 1
        time.sleep(0.0001)
""",
        path_of(agent_dir),
    )
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        assert child.hear() == "True"
    damager.kill()
    damager.wait()
    remove_segment(agent_dir)
    assert agent.ask() == "blocked"
    for other in others:
        other.ask("block('ask', 'Proceed?')")
    assert eventually(lambda: pix_shm.state() == State(0, 3, "Proceed?"), PROMISE)
    assert len(pix_shm.agents()) == 3
    for child in (*children, *others):
        child.say()
    for child in children:
        assert child.finish() == ""


def test_random_damage_under_living_agents_crashes_nobody(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: each keeps telling itself the truth, and all are well in the next segment."""
    children = [start_agent(processes, str(number)) for number in range(3)]
    dice = random.Random(27)
    for _ in range(40):
        with words_of(agent_dir) as words:
            for _ in range(200):
                at = dice.choice((dice.randrange(8, len(words)), dice.randrange(8, 1600)))
                words[at] = dice.getrandbits(64)
        for child in children:
            child.ask("block('ask', 'Proceed?'), state(), agents(), revision()")
            assert child.ask("own()") == "(0, 1)"
            child.ask("release('ask')")
        pix_shm.state(), pix_shm.agents(), pix_shm.revision()
    remove_segment(agent_dir)
    for child in children:
        child.ask("block('ask', 'Proceed?')")
    assert eventually(lambda: pix_shm.state() == State(0, 3, "Proceed?"), PROMISE)
    for child in children:
        assert child.finish() == ""
