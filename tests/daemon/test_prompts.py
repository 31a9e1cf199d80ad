"""Programs without a profile, with the real `pal`, daemon and holder."""

import sys
from collections.abc import Iterator

import pytest
from tests.app.person import holders_of
from tests.daemon.stage import Home, new_home, wait_until
from tests.processes import end_process

READING = "import sys\nwhile True: print('got', repr(input(sys.argv[1])))"


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as made:
        made.start_daemon()
        try:
            yield made
        finally:
            for pid in holders_of(made.path):
                end_process(pid, 9)


def run(home: Home, question: str, *options: str) -> None:
    program = (sys.executable, "-I", "-u", "-c", READING, question)
    home.ok("run", "--detach", "--name", "luna", *options, "--", *program)


def screen(home: Home) -> str:
    """Return the text of luna's terminal as it is; the text form for agents would escape the typed head."""
    return str(home.ok("peek", "luna", "--json").json["text"])


def gate(home: Home) -> dict[str, object]:
    (found,) = home.ok("status", "luna", "--json").json["gates"]
    assert isinstance(found, dict)
    return found


def test_program_with_a_prompt_named_at_the_start_gets_its_mail(home: Home) -> None:
    run(home, "what now? ", "--prompt", r"what \w+\? ")

    home.ok("send", "@luna", "--", "hello")

    wait_until(lambda: "got '[pal message" in screen(home))


@pytest.mark.parametrize(
    ("options", "head"),
    [
        ((), "[pal message #{0} from: nova] hello"),
        (("--interrupt",), "[URGENT pal message #{0} from: nova] hello"),
        (
            ("--intent", "request"),
            "[pal message #{0} from: nova (response expected: pal send --reply-to {0} -- TEXT)] hello",
        ),
        (
            ("--expects-reply",),
            "[pal message #{0} from: nova (response expected: pal send --reply-to {0} -- TEXT)] hello",
        ),
    ],
    ids=["plain", "interrupt", "request", "expects-reply"],
)
def test_typed_head_contains_what_is_needed_to_reply(home: Home, options: tuple[str, ...], head: str) -> None:
    run(home, "> ")
    nova = home.shell()
    nova.ok("join", "--name", "nova")

    nova.ok("send", "@luna", *options, "--", "hello")

    (seq,) = [
        event["seq"] for event in home.events("--type", "message") if event["payload"]["text"] == "hello"
    ]
    typed = head.format(seq)
    wait_until(lambda: f"got '{typed}'" in screen(home).replace("\n", ""))


def test_closed_gate_says_why_and_how_to_open_it(home: Home) -> None:
    run(home, "Say a word: ")
    wait_until(lambda: gate(home)["reason"] == "prompt")

    listed = home.ok("list", "-v").out
    status = home.ok("status", "luna").out

    for output in (listed, status):
        assert "prompt: its program shows no known prompt" in " ".join(output.split())
        assert "pal run --prompt REGEX" in output


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("(", "not a regular expression"), ("(a+)+$", "repeats a group"), ("a*b*c*d*", "repeats")],
)
def test_invalid_prompt_rule_is_refused_before_anything_starts(home: Home, rule: str, expected: str) -> None:
    result = home.pal("run", "--detach", "--name", "luna", "--prompt", rule, "--", "cat")

    assert result.status != 0
    assert expected in result.err
    assert holders_of(home.path) == []


def test_doctor_checks_the_profile_files(home: Home) -> None:
    folder = home.path / "profiles"
    folder.mkdir()
    (folder / "good.toml").write_text("prompts = ['you> ']\n")
    (folder / "bad.toml").write_text("promts = ['you> ']\n")

    checks = [one for one in home.pal("doctor", "--json").lines if one["kind"] == "check"]

    found = {one["check"]: one for one in checks if one["check"].startswith("profile ")}
    assert found.pop("profile good")["ok"]
    ((what, bad),) = found.items()
    assert "promts" in what
    assert not bad["ok"]
    assert "profiles/bad.toml" in bad["advice"]
