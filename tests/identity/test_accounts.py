"""Accounts of the IRC door: tokens, one-time codes and guests."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doors.parts import Links
from tests.fakes import Bus, FakeClock, open_memory, opened_bus

from palaver.broker.context import SYSTEM_CALLER
from palaver.config import KEYS, LiveSettings, LoadedSettings, Settings
from palaver.errors import BadName, NameTaken, NotFound, NotPerson, NotYou, StorageFailed, WhoAreYou
from palaver.identity.accounts import (
    CODE_MS,
    FILE_NAME,
    GUEST_PREFIX,
    LIMIT_CODES,
    LIMIT_WRONG_A_MINUTE,
    REGISTERED,
    Account,
    Accounts,
    OneTimeCodes,
    TokenBook,
    draw_code,
    looks_like,
)
from palaver.protocol.agents import GUEST_ROLE, Caller, Standing, caller_for
from palaver.protocol.message import EXTERNAL, HUMAN
from palaver.protocol.requests import Gone, Join, Leave, Register

PERSON = Caller(name=HUMAN, standing=Standing.HUMAN, kind=HUMAN)


class Stage:
    """Accounts on a bus, with a token book in a directory."""

    def __init__(self, bus: Bus, home: Path) -> None:
        self.bus = bus
        self.home = home
        self.tokens = TokenBook(home, bus.clock)
        self.links = Links()
        self.live = LiveSettings(LoadedSettings(settings=Settings(), origins=dict.fromkeys(KEYS, "default")))
        self.accounts = Accounts(
            tokens=self.tokens,
            directory=bus.broker.directory,
            presence=self.links,
            submit=bus.broker.submit,
            gone=lambda name, reason: bus.broker.submit(SYSTEM_CALLER, Gone(name=name, reason=reason)),
            live=self.live,
            clock=bus.clock,
        )

    def let_guests(self, word: str) -> None:
        self.live.take(replace(self.live.now, irc_guests=word), {"irc_guests"})

    async def register(self, name: str, role: str = "worker") -> str:
        secret, _ = await self.accounts.register(PERSON, name, role)
        return secret


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened_bus(open_memory, tmp_path) as bus:
        yield Stage(bus, tmp_path)


# --------------------
# Tokens


async def test_token_logs_its_agent_in(stage: Stage) -> None:
    secret = await stage.register("luna", "operator")

    account = stage.accounts.log_in("Luna", secret)

    assert (account.name, account.is_program, account.is_guest) == ("luna", True, False)
    assert (account.caller.name, account.caller.standing) == ("luna", Standing.OPERATOR)
    assert stage.accounts.is_valid(account)


async def test_token_of_another_agent_or_a_wrong_one_is_refused(stage: Stage) -> None:
    secret = await stage.register("luna")
    await stage.register("nova")

    for name, password in (("nova", secret), ("luna", secret[:-1]), ("luna", ""), ("zed", secret)):
        with pytest.raises(WhoAreYou, match="pal agent register"):
            stage.accounts.log_in(name, password)


async def test_token_for_several_agents_is_refused(stage: Stage) -> None:
    await stage.register("luna")
    secret, _ = await stage.tokens.create("", standing="worker", by="human", acts_for=("luna",))

    with pytest.raises(WhoAreYou, match="WebSocket"):
        stage.accounts.log_in("luna", secret)


async def test_token_limits_the_standing_of_its_agent(stage: Stage) -> None:
    await stage.bus.join("luna", role="operator")
    secret, _ = await stage.tokens.create("luna", standing="worker", by="nova")

    assert stage.accounts.log_in("luna", secret).caller.standing is Standing.WORKER


async def test_agent_is_offline_until_it_connects(stage: Stage) -> None:
    await stage.register("luna")

    agent = stage.bus.agent("luna")

    assert (agent.left, agent.detail, agent.link) == (True, REGISTERED, True)


async def test_registered_name_cannot_be_registered_again(stage: Stage) -> None:
    await stage.register("luna")

    with pytest.raises(NameTaken, match="pal agent rotate luna"):
        await stage.register("luna")


async def test_name_with_a_device_cannot_be_registered(stage: Stage) -> None:
    with pytest.raises(BadName, match="device"):
        await stage.register("luna:BOXE")


async def test_rotate_ends_the_old_token_at_once(stage: Stage) -> None:
    old = await stage.register("luna", "operator")
    account = stage.accounts.log_in("luna", old)
    was_valid: list[bool] = []
    stop = stage.accounts.watch(lambda: was_valid.append(stage.accounts.is_valid(account)))

    new, token = await stage.accounts.rotate(PERSON, "luna")

    assert was_valid == [False]
    assert token.standing == "operator"
    with pytest.raises(WhoAreYou):
        stage.accounts.log_in("luna", old)
    assert stage.accounts.log_in("luna", new).name == "luna"
    stop()
    await stage.tokens.revoke({token.id})
    assert was_valid == [False]


async def test_agent_that_rotates_a_token_gives_it_no_more_rights(stage: Stage) -> None:
    boss = await stage.bus.join("boss", role="operator")
    await stage.accounts.register(boss, "luna", "worker")

    _, token = await stage.accounts.rotate(boss, "luna")

    assert token.standing == "worker"


async def test_name_without_a_registered_token_cannot_be_rotated(stage: Stage) -> None:
    await stage.bus.join("luna")
    await stage.tokens.create("luna", standing="worker", by="human")

    with pytest.raises(NotFound, match="pal agent list"):
        await stage.accounts.rotate(PERSON, "luna")


async def test_rotated_token_of_an_unknown_agent_is_a_workers(stage: Stage) -> None:
    await stage.tokens.create("luna", standing="operator", by="human", is_kept=True)

    _, token = await stage.accounts.rotate(PERSON, "luna")

    assert token.standing == "worker"


async def test_changed_role_ends_the_connections_of_a_token(stage: Stage) -> None:
    account = stage.accounts.log_in("luna", await stage.register("luna"))

    await stage.bus.broker.submit(PERSON, Join(name="luna", role="observer", has_link=True))

    assert not stage.accounts.is_valid(account)


async def test_account_is_invalid_while_the_tokens_cannot_be_read(stage: Stage) -> None:
    account = stage.accounts.log_in("luna", await stage.register("luna"))
    (stage.home / FILE_NAME).write_text("{")
    again = Stage(stage.bus, stage.home).accounts

    assert not again.is_valid(account)
    with pytest.raises(StorageFailed):
        again.log_in("luna", "x")


async def test_account_of_an_unknown_agent_is_invalid(stage: Stage) -> None:
    account = stage.accounts.log_in("luna", await stage.register("luna"))

    stage.bus.broker.directory.drop("luna")

    assert not stage.accounts.is_valid(account)


# --------------------
# Connections


async def test_connection_makes_its_agent_present_and_it_joins_again(stage: Stage) -> None:
    account = stage.accounts.log_in("luna", await stage.register("luna", "orchestrator"))

    await stage.accounts.connected(account)

    agent = stage.bus.agent("luna")
    assert (agent.left, agent.role, agent.seat, agent.link) == (False, "orchestrator", None, True)
    assert stage.links.is_present("luna")
    stage.accounts.disconnected(account)
    assert not stage.links.is_present("luna")


async def test_agent_was_last_seen_when_its_connection_ended(stage: Stage) -> None:
    account = stage.accounts.log_in("luna", await stage.register("luna"))
    assert stage.accounts.last_seen_ms(stage.bus.agent("luna")) is None
    await stage.accounts.connected(account)
    stage.bus.clock.advance(3600)

    stage.accounts.disconnected(account)

    assert stage.accounts.last_seen_ms(stage.bus.agent("luna")) == stage.bus.clock.now_ms()


async def test_agent_joins_again_after_its_bye_with_the_same_token(stage: Stage) -> None:
    secret = await stage.register("luna")
    account = stage.accounts.log_in("luna", secret)
    await stage.accounts.connected(account)
    await stage.bus.broker.submit(account.caller, Leave())
    stage.accounts.disconnected(account)

    again = stage.accounts.log_in("luna", secret)
    await stage.accounts.connected(again)

    assert not stage.bus.agent("luna").left


async def test_connection_of_a_running_agent_does_not_change_its_seat(stage: Stage) -> None:
    await stage.bus.join("luna")
    before = stage.bus.agent("luna")
    secret, _ = await stage.tokens.create("luna", standing="worker", by="human")

    await stage.accounts.connected(stage.accounts.log_in("luna", secret))

    assert stage.bus.agent("luna") == before
    assert stage.links.is_present("luna")


async def test_agent_of_another_machine_is_present_without_a_join(stage: Stage) -> None:
    await stage.bus.broker.submit(PERSON, Register(name="luna:BOXE"))
    secret, _ = await stage.tokens.create("luna:BOXE", standing="worker", by="human")

    await stage.accounts.connected(stage.accounts.log_in("luna:boxe", secret))

    assert stage.links.is_present("luna:BOXE")


async def test_failed_join_counts_no_connection(stage: Stage) -> None:
    account = stage.accounts.log_in("luna", await stage.register("luna"))
    forged = replace(account, caller=replace(account.caller, name="nova"))

    with pytest.raises(NotYou):
        await stage.accounts.connected(forged)

    assert not stage.links.is_present("luna")


async def test_human_and_guests_have_no_link(stage: Stage) -> None:
    stage.let_guests("talk")
    for account in (
        stage.accounts.log_in("human", stage.accounts.codes.issue()),
        stage.accounts.guest("bob", is_local=True),
    ):
        await stage.accounts.connected(account)
        stage.accounts.disconnected(account)

    assert stage.links.count == {}


# --------------------
# Persons


async def test_registered_person_has_the_rights_of_a_guest(stage: Stage) -> None:
    account = stage.accounts.log_in("ann", await stage.register("ann", GUEST_ROLE))

    assert (account.is_program, account.is_guest) == (False, False)
    assert (account.caller.kind, account.caller.standing) == (HUMAN, Standing.GUEST)
    assert not account.caller.is_person
    await stage.accounts.connected(account)
    assert stage.bus.agent("ann").role == GUEST_ROLE


async def test_only_a_person_registers_a_person(stage: Stage) -> None:
    boss = await stage.bus.join("boss", role="operator")

    for caller in (boss, replace(PERSON, by="boss")):
        with pytest.raises(NotPerson, match="--person"):
            await stage.accounts.register(caller, "ann", GUEST_ROLE)


async def test_code_logs_the_human_in_once(stage: Stage) -> None:
    code = stage.accounts.codes.issue()

    account = stage.accounts.log_in("Human", code)

    assert account == Account(
        name=HUMAN, caller=Caller(name=HUMAN, standing=Standing.GUEST, kind=HUMAN), token=None
    )
    assert stage.accounts.is_valid(account)
    with pytest.raises(WhoAreYou, match="used before"):
        stage.accounts.log_in("human", code)


async def test_token_is_not_a_password_of_the_human(stage: Stage) -> None:
    secret = await stage.register("luna", "operator")

    with pytest.raises(WhoAreYou):
        stage.accounts.log_in("human", secret)
    with pytest.raises(WhoAreYou):
        stage.accounts.log_in("luna", stage.accounts.codes.issue())


# --------------------
# One-time codes


def test_code_may_be_written_in_any_case_and_without_hyphens() -> None:
    codes = OneTimeCodes(FakeClock())

    codes.use(f" {codes.issue().upper()} ")
    codes.use(codes.issue().replace("-", ""))


def test_code_ends_after_five_minutes() -> None:
    clock = FakeClock()
    codes = OneTimeCodes(clock)
    early, late = codes.issue(), codes.issue()

    clock.advance(CODE_MS / 1000 - 1)
    codes.use(early)
    clock.advance(1)

    with pytest.raises(WhoAreYou, match="five minutes"):
        codes.use(late)


def test_only_the_newest_codes_are_valid() -> None:
    codes = OneTimeCodes(FakeClock())
    issued = [codes.issue() for _ in range(LIMIT_CODES + 1)]

    with pytest.raises(WhoAreYou):
        codes.use(issued[0])
    for code in issued[1:]:
        codes.use(code)


def test_guesses_are_limited_and_end_no_valid_code() -> None:
    clock = FakeClock()
    codes = OneTimeCodes(clock)
    code = codes.issue()
    for _ in range(LIMIT_WRONG_A_MINUTE):
        with pytest.raises(WhoAreYou, match="wrong"):
            codes.use(draw_code())

    with pytest.raises(WhoAreYou, match="wait a minute"):
        codes.use(code)
    with pytest.raises(WhoAreYou, match="wait a minute"):
        codes.use(draw_code())

    clock.advance(60)
    codes.use(code)


def test_codes_are_kept_as_hashes_only() -> None:
    codes = OneTimeCodes(FakeClock())
    code = codes.issue()

    kept = repr(vars(codes))

    assert code not in kept
    assert code.replace("-", "") not in kept


@given(st.text(max_size=40))
def test_no_other_text_is_a_code(text: str) -> None:
    codes = OneTimeCodes(FakeClock())
    codes.issue()

    with pytest.raises(WhoAreYou):
        codes.use(text)


# --------------------
# Guests


@pytest.mark.parametrize(("word", "standing"), [("talk", Standing.GUEST), ("read", Standing.OBSERVER)])
async def test_setting_decides_what_a_guest_may_do(stage: Stage, word: str, standing: Standing) -> None:
    stage.let_guests(word)

    account = stage.accounts.guest("Bob", is_local=True)

    assert (account.name, account.is_guest, account.is_program) == ("Bob", True, False)
    assert account.caller == Caller(name=GUEST_PREFIX + "bob", standing=standing, kind=EXTERNAL)


async def test_guest_needs_the_setting_and_this_machine(stage: Stage) -> None:
    with pytest.raises(WhoAreYou, match="pal irc code"):
        stage.accounts.guest("bob", is_local=True)
    stage.let_guests("talk")
    with pytest.raises(WhoAreYou, match="password is required"):
        stage.accounts.guest("bob", is_local=False)


@pytest.mark.parametrize(
    "nick",
    ["luna", "LUNA", "Luna_", "[luna]", "1una", "l-u-n-a", "\u0142una", "lun\u0430", "luna|", "0rn"],
)
async def test_guest_cannot_have_a_nick_like_an_agents(stage: Stage, nick: str) -> None:
    stage.let_guests("talk")
    await stage.register("luna")
    await stage.register("om")

    assert stage.accounts.owns(nick)
    with pytest.raises(WhoAreYou, match="looks like"):
        stage.accounts.guest(nick, is_local=True)


@pytest.mark.parametrize("nick", ["human", "HUMAN", "hurnan", "Human_2", "pal", "pa1", "pal-bot", "system"])
async def test_guest_cannot_look_like_the_person_or_the_bus(stage: Stage, nick: str) -> None:
    assert stage.accounts.owns(nick)


async def test_other_nicks_are_free(stage: Stage) -> None:
    await stage.register("luna")

    assert not [nick for nick in ("bob", "lunatic", "palmer", "humane", "foo^") if stage.accounts.owns(nick)]


async def test_guest_ends_with_the_setting_and_when_an_agent_gets_its_name(stage: Stage) -> None:
    stage.let_guests("talk")
    bob, eve = (stage.accounts.guest(nick, is_local=True) for nick in ("bob", "eve"))
    calls: list[bool] = []
    stage.accounts.watch(lambda: calls.append(stage.accounts.is_valid(eve)))

    stop = stage.accounts.follow(stage.bus.log)
    await stage.register("bob")
    assert calls == [True]
    stop()
    assert (stage.accounts.is_valid(bob), stage.accounts.is_valid(eve)) == (False, True)
    stage.let_guests("read")

    assert calls == [True, False]


@given(st.text(st.characters(codec="ascii"), max_size=20))
def test_form_of_a_name_does_not_depend_on_case_or_punctuation(name: str) -> None:
    assert looks_like(name.upper()) == looks_like(f"_{name.lower()}-|")
    assert looks_like(looks_like(name)) == looks_like(name)


async def test_caller_of_a_person_is_the_same_as_that_of_its_agent(stage: Stage) -> None:
    await stage.register("ann", GUEST_ROLE)

    assert caller_for(stage.bus.agent("ann")).kind == HUMAN
