"""The four identity rules, with made-up process chains."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import AlreadyJoined, BadRequest, NotPerson, NotYou, WhoAreYou
from palaver.harness.marks import MARKS, SEAT_MARK
from palaver.identity.caller import (
    HUMAN,
    SCRIPT,
    CallerClaim,
    CallerIdentifier,
    act_as,
    is_orphan,
    who_is_asking,
    who_joins,
)
from palaver.identity.process import Process
from palaver.identity.seats import SeatIndex, TurnSeat, seat_mark
from palaver.protocol.agents import ROLES, Agent, Caller, Seat, Standing, standing_of_role

BOOT = "this-boot"
TTY = 34816
INIT = Process(1, 0, 1, 1, 0, -1, 0, "init")
SHELL = Process(10, 1, 10, 10, TTY, 20, 100, "bash")
PAL = Process(20, 10, 20, 10, TTY, 20, 200, "pal")
AT_TERMINAL = [PAL, SHELL, INIT]


def _agent(name: str, *, role: str = "worker", pid: int = 10, key: str = "", harness: str = "codex") -> Agent:
    seat = Seat(pid=pid, start=pid * 10, boot=BOOT, key=key)
    return Agent(name=name, base=name, role=role, seat=seat, harness=harness, session=key)


def _ask(
    *agents: Agent,
    chain: Sequence[Process] = AT_TERMINAL,
    claim: CallerClaim | None = None,
    marks_above: bool = False,
    marks_between: bool = False,
    holder_ttys: Sequence[int] = (),
) -> Caller:
    return who_is_asking(
        chain,
        claim or CallerClaim(),
        SeatIndex(BOOT, agents),
        marks_above=marks_above,
        holder_ttys=holder_ttys,
        marks_between=marks_between,
    )


def _mark(agent: Agent) -> dict[str, str]:
    assert agent.seat is not None
    return {SEAT_MARK: seat_mark(agent.seat, agent.name)}


def _child(key: str, *, parent: str = "luna", harness: str = "codex", left: bool = False) -> Agent:
    seat = Seat(pid=10, start=100, boot=BOOT, key=key)
    name = f"{parent}_x_{key}"
    return Agent(
        name=name, base=name, parent=parent, by=parent, seat=seat, session=key, harness=harness, left=left
    )


# Rule 1


def test_nearest_anchor_is_the_caller() -> None:
    outer, inner = _agent("outer", pid=1), _agent("inner", role="operator")
    init = replace(INIT, start=10)

    caller = _ask(outer, inner, chain=[PAL, SHELL, init])

    assert (caller.name, caller.standing, caller.kind) == ("inner", Standing.OPERATOR, "instance")
    assert (caller.harness, caller.seat, caller.by) == ("codex", inner.seat, None)


def test_process_with_a_reused_pid_is_not_the_anchor() -> None:
    caller = _ask(_agent("luna"), chain=[PAL, replace(SHELL, start=101), INIT])

    assert caller == HUMAN


def test_anchor_takes_precedence_over_a_forged_mark() -> None:
    boss = _agent("boss", role="operator", pid=99)

    caller = _ask(_agent("luna"), boss, claim=CallerClaim(marks=_mark(boss)))

    assert (caller.name, caller.standing) == ("luna", Standing.WORKER)


@pytest.mark.parametrize(
    "claim",
    [
        CallerClaim(key="b"),
        CallerClaim(marks={"CODEX_THREAD_ID": "b"}),
        CallerClaim(key="b", marks={"CODEX_THREAD_ID": "a"}),
        CallerClaim(marks=_mark(_agent("nova", key="b"))),
        CallerClaim(marks={"CODEX_THREAD_ID": "b"} | _mark(_agent("luna", key="a"))),
        CallerClaim(marks={"CLAUDE_CODE_SESSION_ID": "b"}),
        CallerClaim(marks={"CLAUDE_CODE_SESSION_ID": "b"} | _mark(_agent("luna", key="a"))),
        CallerClaim(marks={"CLAUDE_CODE_SESSION_ID": "a", "CODEX_THREAD_ID": "b"}),
    ],
    ids=[
        "key",
        "environment",
        "key-first",
        "seat-mark",
        "environment-before-seat-mark",
        "another-harness",
        "another-harness-before-seat-mark",
        "own-harness-first",
    ],
)
def test_key_selects_one_of_several_seats_in_a_process(claim: CallerClaim) -> None:
    caller = _ask(_agent("luna", key="a"), _agent("nova", key="b"), claim=claim)

    assert caller.name == "nova"


@pytest.mark.parametrize(
    "claim",
    [
        CallerClaim(),
        CallerClaim(marks={"CLAUDE_CODE_SESSION_ID": "c"}),
        CallerClaim(marks={"CLAUDE_CODE_SESSION_ID": "a", "GEMINI_SESSION_ID": "b"}),
        CallerClaim(marks={SEAT_MARK: "x"}),
    ],
    ids=["none", "another-harness", "two-other-harnesses", "unknown-mark"],
)
def test_several_seats_without_a_matching_key_are_refused(claim: CallerClaim) -> None:
    with pytest.raises(WhoAreYou, match=r"luna, nova") as refusal:
        _ask(_agent("luna", key="a"), _agent("nova", key="b"), claim=claim)

    assert refusal.value.code == "who_are_you"


def test_session_that_is_not_one_of_several_must_join() -> None:
    luna, nova = (_agent(name, key=name, harness="claude") for name in ("luna", "nova"))

    with pytest.raises(WhoAreYou, match=r"has not joined.*luna, nova"):
        _ask(luna, nova, claim=CallerClaim(key="c"))


@pytest.mark.parametrize(
    "claim",
    [
        CallerClaim(key="a"),
        CallerClaim(marks={"CODEX_THREAD_ID": "a"}),
        CallerClaim(marks={"CLAUDE_CODE_SESSION_ID": "a"}),
        CallerClaim(marks=_mark(_agent("luna", key="a"))),
    ],
    ids=["key", "environment", "another-harness", "seat-mark"],
)
@pytest.mark.parametrize("role", ["worker", "observer"])
def test_caller_that_selects_a_seat_has_the_lowest_rights_there(claim: CallerClaim, role: str) -> None:
    luna, nova = _agent("luna", key="a", role="operator"), _agent("nova", key="b", role=role)

    caller = _ask(luna, nova, claim=claim)

    assert (caller.name, caller.standing) == ("luna", standing_of_role(role))


def test_neighbouring_operators_keep_their_rights() -> None:
    luna, nova = _agent("luna", key="a", role="operator"), _agent("nova", key="b", role="operator")

    assert _ask(luna, nova, claim=CallerClaim(key="a")).standing is Standing.OPERATOR
    assert (
        _ask(luna, nova, claim=CallerClaim(marks={"CLAUDE_CODE_SESSION_ID": "a"})).standing is Standing.WORKER
    )


def test_session_next_to_an_observer_joins_like_a_script() -> None:
    eye = _agent("eye", key="a", role="observer")

    stranger = _ask(eye, claim=CallerClaim(key="b"))

    assert stranger.standing is Standing.OBSERVER
    assert who_joins(stranger) == SCRIPT
    assert who_joins(HUMAN) == HUMAN


@pytest.mark.parametrize(
    "claim",
    [
        CallerClaim(key="c"),
        CallerClaim(marks={"CODEX_THREAD_ID": "c"}),
        CallerClaim(key="c", marks={"CLAUDE_CODE_SESSION_ID": "a"}),
        CallerClaim(key="c", marks=_mark(_agent("luna", key="a"))),
    ],
    ids=["key", "environment", "beside-another-harness", "beside-a-seats-mark"],
)
def test_session_without_a_seat_is_not_an_agent_of_its_process(claim: CallerClaim) -> None:
    luna, nova = _agent("luna", key="a", role="operator"), _agent("nova", key="b")

    for caller in (_ask(luna, claim=claim), _ask(luna, nova, claim=claim)):
        assert (caller.name, caller.kind, caller.standing) == ("script", "external", Standing.WORKER)
        with pytest.raises(NotYou):
            act_as(caller, nova)


def test_only_seat_of_a_process_needs_no_key() -> None:
    luna = _agent("luna", key="a", role="operator")

    same = _ask(luna, claim=CallerClaim(key="a"))
    unsaid = _ask(luna)

    assert same.standing == unsaid.standing == Standing.OPERATOR


def test_seat_without_a_key_is_the_same_for_every_session() -> None:
    luna = _agent("luna", role="operator", harness="claude")

    assert _ask(luna, claim=CallerClaim(key="new-session")).standing is Standing.OPERATOR


@pytest.mark.parametrize(
    ("role", "standing"), [("operator", Standing.WORKER), ("observer", Standing.OBSERVER)]
)
def test_harness_without_an_agent_uses_the_anchor_with_worker_rights(role: str, standing: Standing) -> None:
    caller = _ask(_agent("luna", role=role), marks_between=True)

    assert (caller.name, caller.standing) == ("luna", standing)


# Rule 2


def test_mark_identifies_its_seat_even_at_the_terminal_of_a_person() -> None:
    luna = _agent("luna", pid=99)

    caller = _ask(luna, claim=CallerClaim(marks=_mark(luna)))

    assert (caller.name, caller.standing, caller.seat) == ("luna", Standing.WORKER, luna.seat)


def test_session_of_a_harness_identifies_the_agent_too() -> None:
    luna = _agent("luna", pid=99, key="t")

    assert _ask(luna, claim=CallerClaim(marks={"CODEX_THREAD_ID": "t"})).name == "luna"


def test_forged_mark_of_an_operator_has_worker_rights() -> None:
    boss = _agent("boss", pid=99, role="operator")

    assert _ask(boss, claim=CallerClaim(marks=_mark(boss))).standing is Standing.WORKER


def test_several_marks_give_the_inner_name_and_the_lowest_rights() -> None:
    outer, inner = _agent("outer", pid=50, role="observer"), _agent("inner", pid=60, key="t")

    caller = _ask(outer, inner, claim=CallerClaim(marks=_mark(outer) | {"CODEX_THREAD_ID": "t"}))

    assert (caller.name, caller.standing) == ("inner", Standing.OBSERVER)


# Rules 3 and 4


def test_caller_in_the_foreground_of_a_terminal_is_the_human() -> None:
    assert _ask() == HUMAN


@pytest.mark.parametrize(
    "chain",
    [
        [],
        [replace(PAL, tty=0, foreground=-1), SHELL, INIT],
        [replace(PAL, pgrp=21), SHELL, INIT],
        [replace(PAL, session=20), SHELL, INIT][1:2],
        [PAL, SHELL],
        [replace(PAL, ppid=1), INIT],
        [replace(PAL, session=0), SHELL, INIT],
    ],
    ids=["unseen", "no-terminal", "background", "shell-behind", "cut-chain", "orphan", "leader-elsewhere"],
)
def test_unknown_caller_is_a_script_and_never_the_human(chain: Sequence[Process]) -> None:
    assert _ask(chain=chain) == SCRIPT


def test_terminal_of_a_holder_excludes_the_human() -> None:
    assert _ask(holder_ttys=[TTY]) == SCRIPT


def test_mark_above_the_caller_excludes_the_human() -> None:
    assert _ask(marks_above=True) == SCRIPT


@pytest.mark.parametrize("name", [*MARKS, SEAT_MARK])
def test_any_mark_even_an_unknown_one_excludes_the_human(name: str) -> None:
    assert _ask(claim=CallerClaim(marks={name: "stale"})) == SCRIPT
    assert _ask(claim=CallerClaim(marks={name: ""})) == HUMAN


_CHAINS = st.lists(
    st.builds(
        Process,
        pid=st.integers(1, 4),
        ppid=st.integers(0, 4),
        pgrp=st.integers(1, 3),
        session=st.integers(0, 3),
        tty=st.sampled_from([0, TTY]),
        foreground=st.integers(-1, 3),
        start=st.sampled_from([10, 20, 30, 40]),
        name=st.just("x"),
    ),
    max_size=4,
)
_KEYS = st.sampled_from(["", "a", "b"])
_AGENTS = st.lists(
    st.builds(
        _agent,
        st.sampled_from(["luna", "nova"]),
        role=st.sampled_from(ROLES),
        pid=st.integers(1, 9),
        key=st.sampled_from(["", "a", "b"]),
    ),
    max_size=3,
)
_CLAIMS = st.builds(
    CallerClaim,
    key=st.sampled_from(["", "a", "b"]),
    marks=st.dictionaries(st.sampled_from([*MARKS, SEAT_MARK]), st.sampled_from(["", "a", "b"])),
)


@given(chain=_CHAINS, agents=_AGENTS, claim=_CLAIMS, above=st.booleans())
def test_claim_never_raises_rights(
    chain: list[Process], agents: list[Agent], claim: CallerClaim, above: bool
) -> None:
    """Compared with the same caller without a claim, rights stay or fall, and an anchor stays the anchor."""
    try:
        silent = _ask(*agents, chain=chain, marks_above=above)
        claiming = _ask(*agents, chain=chain, claim=claim, marks_above=above)
    except WhoAreYou:
        return

    assert claiming.standing <= silent.standing
    if SeatIndex(BOOT, agents).nearest(chain) is not None:
        assert claiming.name in {SCRIPT.name, *(agent.name for agent in agents)}
        assert claiming.name != SCRIPT.name or claiming.seat is not None


_NEIGHBOURS = st.lists(
    st.builds(_agent, st.sampled_from(["luna", "nova", "mira"]), role=st.sampled_from(ROLES), key=_KEYS),
    min_size=1,
    max_size=3,
)
_CHILDREN = st.lists(st.builds(_child, _KEYS, parent=st.sampled_from(["luna", "nova"])), max_size=2)


@given(agents=_NEIGHBOURS, children=_CHILDREN, claim=_CLAIMS, between=st.booleans())
def test_caller_at_an_anchor_has_at_most_the_lowest_rights_there(
    agents: list[Agent], children: list[Agent], claim: CallerClaim, between: bool
) -> None:
    """This holds for every claim and agent, and a session's own key never selects a sub-agent."""
    seats = SeatIndex(BOOT, agents)
    here = seats.at(SHELL)
    try:
        caller = _ask(*agents, *children, claim=claim, marks_between=between)
    except WhoAreYou:
        return

    assert caller.standing <= min(standing_of_role(agent.role) for agent in here)
    owners = {agent.name for agent in here if agent.seat is not None and agent.seat.key == claim.key != ""}
    assert not owners or caller.name in owners


@given(chain=_CHAINS, agents=_AGENTS, claim=_CLAIMS)
def test_human_has_no_anchor_and_no_mark_and_a_foreground_terminal(
    chain: list[Process], agents: list[Agent], claim: CallerClaim
) -> None:
    try:
        caller = _ask(*agents, chain=chain, claim=claim)
    except WhoAreYou:
        return

    if caller == HUMAN:
        assert not claim.has_mark
        assert chain[0].tty == TTY
        assert chain[0].foreground == chain[0].pgrp
        assert chain[-1].ppid == 0


# --as


def test_human_may_act_as_any_agent_and_it_is_recorded() -> None:
    boss = _agent("boss", role="operator")

    caller = act_as(HUMAN, boss)

    assert (caller.name, caller.standing, caller.by) == ("boss", Standing.OPERATOR, "human")
    assert (caller.kind, caller.harness, caller.seat) == ("instance", "codex", boss.seat)


def test_script_may_act_as_a_present_worker_and_it_is_recorded() -> None:
    caller = act_as(SCRIPT, _agent("luna"))

    assert (caller.name, caller.standing, caller.by) == ("luna", Standing.WORKER, "script")


@pytest.mark.parametrize(
    "target",
    [
        _agent("boss", role="operator"),
        _agent("chief", role="orchestrator"),
        _agent("eye", role="observer"),
        Agent(name="luna:BOXE", base="luna", remote=True),
    ],
    ids=lambda target: target.role,
)
def test_script_may_not_act_as_any_other_agent(target: Agent) -> None:
    with pytest.raises(NotPerson, match=target.name):
        act_as(SCRIPT, target)


def _caller(name: str, standing: Standing = Standing.WORKER, kind: str = "instance") -> Caller:
    return Caller(name=name, standing=standing, kind=kind)


def test_agent_may_act_as_itself() -> None:
    luna = _caller("luna")

    assert act_as(luna, _agent("luna")) is luna


def test_agent_may_act_as_its_child_with_its_own_rights_at_most() -> None:
    child = Agent(name="luna_reviewer_1", base="luna_reviewer_1", role="operator", by="luna")

    caller = act_as(_caller("luna"), child)

    assert (caller.name, caller.standing, caller.by) == ("luna_reviewer_1", Standing.WORKER, "luna")


@pytest.mark.parametrize(
    "caller",
    [
        _caller("luna", Standing.OPERATOR),
        _caller("alice", Standing.GUEST, "human"),
        _caller("script", Standing.GUEST, "external"),
        _caller("bridge", Standing.EXTERNAL, "external"),
    ],
    ids=lambda caller: caller.name,
)
def test_other_callers_may_not_act_as_another_agent(caller: Caller) -> None:
    with pytest.raises(NotYou, match="nova"):
        act_as(caller, _agent("nova"))


def test_guest_named_like_the_parent_of_an_agent_is_not_the_parent() -> None:
    child = Agent(name="luna_1", base="luna_1", by="luna")

    with pytest.raises(NotYou):
        act_as(_caller("luna", Standing.GUEST, "human"), child)


@given(standing=st.sampled_from(Standing), role=st.sampled_from(ROLES), by=st.sampled_from(["luna", ""]))
def test_acting_as_another_never_raises_rights(standing: Standing, role: str, by: str) -> None:
    target = Agent(name="nova", base="nova", role=role, by=by)
    try:
        caller = act_as(_caller("luna", standing), target)
    except NotYou:
        return

    assert caller.standing <= min(standing, standing_of_role(role))


# Sub-agents


@pytest.mark.parametrize(
    ("claim", "name"),
    [
        (CallerClaim(), "luna"),
        (CallerClaim(key="a1"), "luna_x_a1"),
        (CallerClaim(key="a2"), "luna_x_a2"),
        (CallerClaim(key="other"), "luna"),
        (CallerClaim(marks={"CODEX_THREAD_ID": "a1"}), "luna_x_a1"),
        (CallerClaim(marks={"CODEX_THREAD_ID": "other"}), "luna"),
        (CallerClaim(marks={"CLAUDE_CODE_SESSION_ID": "a1"}), "luna"),
    ],
)
def test_only_the_key_of_a_sub_agent_selects_it(claim: CallerClaim, name: str) -> None:
    caller = _ask(_agent("luna"), _child("a1"), _child("a2"), claim=claim)

    assert (caller.name, caller.standing) == (name, Standing.WORKER)


def test_sub_agents_do_not_make_the_calling_session_ambiguous() -> None:
    agents = [_agent("luna", key="s1"), _agent("nova", key="s2"), _child("a1"), _child("a2", parent="nova")]

    assert _ask(*agents, claim=CallerClaim(key="s2")).name == "nova"
    assert _ask(*agents, claim=CallerClaim(key="a2")).name == "nova_x_a2"
    with pytest.raises(WhoAreYou) as refusal:
        _ask(*agents)
    assert "_x_" not in str(refusal.value)


def test_session_that_another_calls_its_sub_agent_stays_itself() -> None:
    agents = [_agent("luna", key="s1"), _agent("nova", key="s2"), _child("s2")]

    for claim in (CallerClaim(key="s2"), CallerClaim(marks={"CODEX_THREAD_ID": "s2"})):
        assert _ask(*agents, claim=claim).name == "nova"
        assert _ask(*agents[1:], claim=claim).name == "nova"


def test_agent_acts_for_its_own_live_sub_agents() -> None:
    luna = Caller(name="luna", standing=Standing.OPERATOR, kind="instance")

    spoken = act_as(luna, _child("a1"))

    assert (spoken.name, spoken.by, spoken.standing) == ("luna_x_a1", "luna", Standing.WORKER)
    with pytest.raises(BadRequest, match="luna_x_a1 has exited"):
        act_as(luna, _child("a1", left=True))
    with pytest.raises(NotYou):
        act_as(luna, _child("a1", parent="nova"))
    assert act_as(HUMAN, _child("a1", left=True)).by == "human"


INIT = Process(1, 0, 1, 1, 0, -1, 1, "init")


def _chain(*starts: int, adopter: str = "init") -> list[Process]:
    first = [Process(100 + start, 0, 0, 0, 0, -1, start, "x") for start in starts]
    return [*first, replace(INIT, pid=2, name=adopter, ppid=0)]


@pytest.mark.parametrize(
    ("chain", "is_left_behind"),
    [
        ([], True),
        (_chain(300, 200), True),
        (_chain(300, 100), True),
        (_chain(300, 99), False),
        (_chain(300, 200, adopter="systemd"), True),
        (_chain(300, 200, adopter="tmux: server"), False),
        ([Process(5, 4, 0, 0, 0, -1, 99, "x")], True),
        ([INIT], False),
    ],
)
def test_process_that_an_agent_may_have_started_is_an_orphan(
    chain: list[Process], is_left_behind: bool
) -> None:
    seats = SeatIndex("boot", [Agent(name="a", base="a", seat=Seat(pid=9, start=100, boot="boot"))])

    assert is_orphan(chain, seats) is is_left_behind
    assert is_orphan(chain, SeatIndex("boot")) is (not chain or chain[-1].ppid != 0)


def test_former_seat_is_an_orphan_and_cannot_act_for_an_agent() -> None:
    seats = SeatIndex(
        "boot", [Agent(name="a", base="a", seat=Seat(pid=199, start=99, boot="boot"), left=True)]
    )
    luna = Agent(name="luna", base="luna")

    assert is_orphan(_chain(300, 99), seats)
    with pytest.raises(NotPerson, match="--as luna"):
        act_as(replace(SCRIPT, is_orphan=True), luna)
    assert who_joins(replace(SCRIPT, is_orphan=True)).is_orphan


# Automatic turns


@pytest.mark.parametrize("role", ROLES)
def test_caller_in_an_automatic_turn_is_its_agent_with_lowered_rights(role: str) -> None:
    luna = _agent("luna", role=role, pid=99)
    seats = SeatIndex(BOOT, [luna])
    identifier = CallerIdentifier(seats)

    seats.begin_turn(Seat(pid=10, start=100, boot=BOOT), TurnSeat(agent=luna, session="mon"))
    in_turn = identifier.who(AT_TERMINAL, CallerClaim())
    with pytest.raises(AlreadyJoined):
        identifier.anchor_of(AT_TERMINAL, CallerClaim())
    seats.begin_turn(Seat(pid=10, start=100, boot=BOOT), TurnSeat(agent=luna, session="mon", is_triage=True))
    in_triage = identifier.who(AT_TERMINAL, CallerClaim())
    seats.end_turn(Seat(pid=10, start=100, boot=BOOT))

    assert (in_turn.name, in_turn.kind, in_turn.turn) == ("luna", "instance", "luna+mon")
    assert in_turn.standing == min(standing_of_role(role), Standing.WORKER)
    assert (in_triage.name, in_triage.kind, in_triage.turn) == ("script", "external", "luna+mon")
    assert (in_triage.standing, in_triage.is_orphan) == (Standing.OBSERVER, True)
    assert identifier.who(AT_TERMINAL, CallerClaim()).name != "luna"


def test_caller_in_a_turn_is_its_agent_despite_another_agents_mark() -> None:
    luna, nova = _agent("luna", pid=99), _agent("nova", pid=98)
    seats = SeatIndex(BOOT, [luna, nova])
    seats.begin_turn(Seat(pid=10, start=100, boot=BOOT), TurnSeat(agent=luna, session="main"))

    caller = CallerIdentifier(seats).who(AT_TERMINAL, CallerClaim(marks=_mark(nova)))

    assert (caller.name, caller.by) == ("luna", None)
