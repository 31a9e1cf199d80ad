"""Parsing of command lines: results, usage errors, and no other failure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import (
    Command,
    Option,
    Parsed,
    Positional,
    Table,
    build_table,
    format_argv,
    is_option,
    parse,
    trace,
)
from palaver.errors import UsageError

NOTES = build_table(
    Command(path=(), summary="Program.", is_group=True),
    [
        Command(path=("note",), summary="Notes.", is_group=True),
        Command(
            path=("note", "add"),
            summary="Add one.",
            aliases=("new",),
            positionals=(Positional(name="TEXT", help="The note."),),
        ),
        Command(path=("log",), summary="Log.", options=(Option(name="--last", metavar="N", help="x"),)),
        Command(path=("log", "clear"), summary="Clear it."),
    ],
)


def refusal(*argv: str, table: Table = TABLE) -> str:
    with pytest.raises(UsageError) as caught:
        parse(table, argv)
    return str(caught.value)


def test_options_are_accepted_anywhere_with_or_without_equals_sign() -> None:
    found = parse(TABLE, ["send", "--thread=pr-1", "@nova", "--reply-to", "42", "hello", "--yes"])

    assert found.command.path == ("send",)
    assert found.options == {"--thread": "pr-1", "--reply-to": "42", "--yes": True}
    assert found.positionals == ["@nova", "hello"]
    assert found.after is None


@pytest.mark.parametrize(
    "argv",
    [
        ["--home", "/x", "--as=luna", "--json", "list"],
        ["list", "--home=/x", "--json", "--as", "luna"],
        ["--json", "list", "--as", "luna", "--home", "/x"],
    ],
)
def test_global_options_are_accepted_before_or_after_the_command(argv: list[str]) -> None:
    found = parse(TABLE, argv)

    assert (found.command.path, found.home, found.as_name, found.form) == (("list",), "/x", "luna", "json")
    assert found.options == {}


def test_text_command_keeps_words_after_a_double_dash_apart() -> None:
    found = parse(TABLE, ["send", "@nova", "--", "--yes", "--", "-h"])

    assert found.positionals == ["@nova"]
    assert found.after == ["--yes", "--", "-h"]
    assert parse(TABLE, ["send", "@nova", "--"]).after == []


def test_words_after_a_double_dash_are_arguments_of_other_commands() -> None:
    found = parse(TABLE, ["ack", "42", "--", "--43"])

    assert found.positionals == ["42", "--43"]
    assert parse(TABLE, ["status", "--", "set"]).command.path == ("status",)


def test_dash_negative_number_and_dash_with_space_are_arguments() -> None:
    found = parse(TABLE, ["send", "-", "-5", "-1.5", "-.5", "- item", "--expires", "-3"])

    assert found.positionals == ["-", "-5", "-1.5", "-.5", "- item"]
    assert found.options == {"--expires": "-3"}
    assert is_option("-5m")
    assert not is_option("")


def test_repeatable_option_returns_a_list() -> None:
    found = parse(TABLE, ["events", "--from", "luna", "--from=nova"])

    assert found.values("--from") == ["luna", "nova"]
    assert found.values("--to") == []


def test_short_option_is_the_long_one() -> None:
    assert parse(TABLE, ["list", "-v"]).has("--verbose")
    assert not parse(TABLE, ["list"]).has("--verbose")


def test_value_may_be_empty_or_contain_equals_signs() -> None:
    assert parse(TABLE, ["send", "--thread=", "x"]).value("--thread") == ""
    assert parse(TABLE, ["events", "--sql=a = b"]).value("--sql") == "a = b"
    assert parse(TABLE, ["events"]).value("--sql") is None


def test_command_of_two_words_is_found_by_its_words_or_an_alias() -> None:
    assert parse(TABLE, ["status", "--json", "set", "idle"]).command.path == ("status", "set")
    assert parse(TABLE, ["status", "luna"]).command.path == ("status",)
    assert parse(NOTES, ["note", "new", "x"]).command.path == ("note", "add")


def test_number_is_whole_and_not_negative() -> None:
    assert parse(TABLE, ["inbox", "--limit", "5"]).number("--limit") == 5
    assert parse(TABLE, ["inbox"]).number("--limit") is None
    for wrong in ("-1", "x", "1.5", "", "٣", "9" * 19):
        with pytest.raises(UsageError, match="--limit requires a whole number"):
            parse(TABLE, ["inbox", f"--limit={wrong}"]).number("--limit")


def test_duration_has_a_unit_or_is_in_seconds() -> None:
    spans = {
        "30": 30,
        "0.5": 0.5,
        "250ms": 0.25,
        "90s": 90,
        "10m": 600,
        "2h": 7200,
        "1d": 86400,
        "1w": 604800,
    }

    for text, seconds in spans.items():
        assert parse(TABLE, ["recv", f"--timeout={text}"]).duration_s("--timeout") == seconds
    assert parse(TABLE, ["recv"]).duration_s("--timeout") is None
    for wrong in ("", "m", "1e9", "-1", "10 m", "nan", "1" * 10):
        with pytest.raises(UsageError, match="--timeout requires a time"):
            parse(TABLE, ["recv", f"--timeout={wrong}"]).duration_s("--timeout")


def test_reading_an_option_that_the_command_lacks_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        parse(TABLE, ["whoami"]).has("--thread")
    with pytest.raises(AssertionError):
        parse(TABLE, ["recv", "--from", "luna"]).value("--from")
    with pytest.raises(AssertionError):
        parse(TABLE, ["recv", "--peek"]).values("--peek")


@pytest.mark.parametrize(
    ("argv", "path"),
    [
        ([], ()),
        (["--help"], ()),
        (["-h"], ()),
        (["help"], ()),
        (["help", "send"], ("send",)),
        (["help", "status", "set"], ("status", "set")),
        (["help", "help"], ("help",)),
        (["help", "--help"], ("help",)),
        (["send", "--help"], ("send",)),
        (["--help", "send"], ("send",)),
        (["--home", "down", "send", "-h"], ("send",)),
        (["status", "set", "nonsense", "--help"], ("status", "set")),
        (["send", "--nonsense", "--thread", "-h"], ("send",)),
        (["send", "--json=1", "--intent", "up", "--help", "--", "x"], ("send",)),
        (["nonsense", "--help"], ()),
    ],
)
def test_help_wins_over_everything(argv: list[str], path: tuple[str, ...]) -> None:
    found = parse(TABLE, argv)

    assert found.is_help
    assert found.command.path == path


def test_help_after_a_double_dash_is_text() -> None:
    assert not parse(TABLE, ["send", "--", "--help"]).is_help


def test_unknown_command_is_refused_with_the_nearest_one() -> None:
    assert refusal("sned") == "unknown command 'sned'; did you mean 'pal send'?"
    assert refusal("xyz") == "unknown command 'xyz'; 'pal --help' lists the commands"
    assert refusal("help", "qqq") == "unknown command 'qqq'; 'pal --help' lists the commands"
    assert refusal("note", "ad", table=NOTES) == "unknown subcommand 'ad'; did you mean 'pal note add'?"
    assert refusal("status", "sett", "idle") == "unknown subcommand 'sett'; did you mean 'pal status set'?"


def test_group_alone_is_refused_with_its_commands() -> None:
    assert refusal("note", table=NOTES) == "pal note requires a subcommand: add"
    assert refusal("--json").startswith("pal requires a command: up, down, status, ")


def test_unknown_option_is_refused_with_the_nearest_one() -> None:
    assert refusal("recv", "--thred", "x") == "pal recv has no option '--thred'; did you mean --thread?"
    assert refusal("recv", "-x") == "pal recv has no option '-x'; 'pal recv --help' lists the options"
    assert refusal("send", "-x") == (
        "pal send has no option '-x'; 'pal send --help' lists the options. "
        "Put text that starts with a dash after --"
    )
    assert refusal("send", "--interupt", "x") == (
        "pal send has no option '--interupt'; did you mean --interrupt? "
        "Put text that starts with a dash after --"
    )


def test_option_of_a_command_is_refused_before_it() -> None:
    assert "put the options of a command after its name" in refusal("--peek", "recv")
    assert refusal("log", "--last", "5", "clear", table=NOTES).startswith(
        "pal log clear has no option '--last'"
    )


def test_abbreviated_option_is_not_accepted() -> None:
    assert refusal("recv", "--fol") == "pal recv has no option '--fol'; did you mean --follow?"


def test_version_option_must_be_alone() -> None:
    assert (
        refusal("--home", "/x", "--version")
        == "--version cannot be combined with other arguments; use: pal --version"
    )


def test_option_without_its_value_is_refused() -> None:
    assert refusal("send", "--thread") == "--thread requires a value: --thread NAME"
    assert refusal("send", "--thread", "--", "x") == "--thread requires a value: --thread NAME"
    assert refusal("send", "--thread", "--yes").endswith("use an equals sign: --thread=…")


def test_flag_takes_no_value() -> None:
    assert refusal("recv", "--peek=yes") == "--peek takes no value; use --peek alone"


def test_value_outside_the_choices_is_refused_with_all_of_them() -> None:
    assert refusal("send", "--intent", "requests", "x") == (
        "invalid value for --intent: 'requests'; expected one of: request, inform, ack; did you mean request?"
    )
    assert (
        refusal("completion", "tcsh") == "invalid value for SHELL: 'tcsh'; expected one of: bash, zsh, fish"
    )


def test_single_option_is_refused_when_given_twice() -> None:
    assert refusal("recv", "--peek", "--peek") == "--peek can be given only once"
    assert "--thread can be given only once" in refusal("send", "--thread", "a", "--thread=b")


def test_exclusive_options_are_refused_together() -> None:
    assert refusal("recv", "--wait", "--follow") == "--wait and --follow cannot be used together; choose one"
    assert refusal("--json", "list", "--text") == "--json and --text cannot be used together; choose one"


@pytest.mark.parametrize("option", ["--name", "--tag", "--role", "--harness", "--pid"])
def test_agent_of_another_machine_is_registered_without_other_options(option: str) -> None:
    value = "operator" if option == "--role" else "7"

    text = refusal("join", "--remote", "luna:BOXE", option, value)

    assert text == f"--remote and {option} cannot be used together; choose one"


def test_too_few_and_too_many_arguments_are_refused_with_the_usage() -> None:
    assert refusal("show") == "missing argument ID; usage: pal show ID"
    assert refusal("show", "1", "2") == "unexpected argument '2'; usage: pal show ID"
    assert refusal("whoami", "--", "x") == "unexpected argument 'x'; usage: pal whoami"


def test_usage_error_shows_the_typed_text_short_and_printable() -> None:
    sentence = refusal("\x1b[2J\udcff\u202e" + "x" * 10_000)

    assert len(sentence) < 200
    assert sentence.isprintable()


def test_bytes_that_are_not_text_pass_through() -> None:
    found = parse(TABLE, ["send", "@nova", "--thread", "\udcff", "caf\udce9"])

    assert found.positionals == ["@nova", "caf\udce9"]
    assert found.value("--thread") == "\udcff"


def test_trace_follows_an_unfinished_line() -> None:
    found = trace(TABLE, ["--json", "send", "@nova", "--yes", "--thread"])

    assert found.entry.command.path == ("send",)
    assert found.given == {"--json", "--yes", "--thread"}
    assert found.positionals == ("@nova",)
    assert found.pending is not None
    assert found.pending.name == "--thread"
    assert not found.is_after


KNOWN = [
    *(word for command in TABLE.commands for word in command.path),
    *(option.name for command in TABLE.commands for option in command.options),
    *(choice for command in TABLE.commands for option in command.options for choice in option.choices),
    *("--home", "--as=", "--json", "--text", "--help", "-h", "-v", "--", "-", "-7", "--intent=ack", "42", ""),
]
ANY_TEXT = st.text(st.characters(), max_size=12)
LINES = st.lists(st.sampled_from(KNOWN) | ANY_TEXT, max_size=10)


@given(LINES)
def test_any_line_is_parsed_or_is_a_usage_error(argv: list[str]) -> None:
    found: Parsed | None = None
    sentence = ""

    try:
        found = parse(TABLE, argv)
    except UsageError as refused:
        sentence = str(refused)

    assert sentence.isprintable()
    assert found is not None or "--help" not in argv[: argv.index("--") if "--" in argv else len(argv)]
    assert found is None or parse(TABLE, format_argv(found)) == found


@given(LINES)
def test_trace_never_fails(argv: list[str]) -> None:
    assert trace(TABLE, argv).entry.command in (*TABLE.commands, TABLE.root.command)


@st.composite
def parsed_lines(draw: st.DrawFn) -> Parsed:
    """Draw a valid line: a command that takes text, many arguments or many options."""
    command = draw(
        st.sampled_from([one for one in TABLE.commands if one.path in {("send",), ("ack",), ("events",)}])
    )
    excluded = {name for names in command.exclusive for name in names[1:]}
    options: dict[str, str | bool | list[str]] = {}
    chosen = (
        st.lists(st.sampled_from(command.options), unique=True, max_size=6)
        if command.options
        else st.just([])
    )
    for option in draw(chosen):
        values = st.sampled_from(option.choices) if option.choices else ANY_TEXT
        if option.name in excluded:
            continue
        if option.metavar is None:
            options[option.name] = True
        elif option.many:
            options[option.name] = draw(st.lists(values, min_size=1, max_size=3))
        else:
            options[option.name] = draw(values)
    plain = st.lists(ANY_TEXT.filter(lambda word: not is_option(word)), min_size=1, max_size=4)
    positionals = draw(plain) if command.positionals else []
    after = draw(st.none() | st.lists(ANY_TEXT, max_size=4)) if command.positionals else None
    if after and command.rest is None:
        positionals = positionals + after
    return Parsed(
        command=command,
        options=options,
        positionals=positionals,
        after=after,
        home=draw(st.none() | ANY_TEXT),
        as_name=draw(st.none() | ANY_TEXT),
        form=draw(st.sampled_from([None, "json", "text"])),
    )


@given(parsed_lines())
def test_line_survives_being_written_and_read_back(line: Parsed) -> None:
    assert parse(TABLE, format_argv(line)) == line


def test_launch_command_reads_only_its_own_options_at_the_start() -> None:
    parsed = parse(TABLE, ["--json", "claude", "--name", "luna", "--model", "opus", "-p", "x", "--name", "y"])

    assert (parsed.form, parsed.options) == ("json", {"--name": "luna"})
    assert (parsed.positionals, parsed.after) == ([], ["--model", "opus", "-p", "x", "--name", "y"])


@pytest.mark.parametrize(
    ("words", "handed_on"),
    [
        ([], []),
        (["--"], []),
        (["--", "--name", "x"], ["--name", "x"]),
        (["--help-me"], ["--help-me"]),
        (["prompt", "--", "-p"], ["prompt", "--", "-p"]),
        (["--tag", "api", "--", "--help"], ["--help"]),
        (["-5"], ["-5"]),
    ],
)
def test_arguments_for_the_harness_stay_unchanged(words: list[str], handed_on: list[str]) -> None:
    parsed = parse(TABLE, ["claude", *words])

    assert parsed.after == handed_on
    assert parse(TABLE, format_argv(parsed)) == parsed


def test_own_option_without_its_value_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--name"):
        parse(TABLE, ["claude", "--name"])
