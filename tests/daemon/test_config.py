"""Settings on the command line: shown to all callers, changed by a person, in effect from the next start."""

import tomllib
from pathlib import Path

import pytest
from tests.daemon.stage import Home, check_output, run_as_person, run_script_as_person

from palaver.config import KEYS


def of_file(home: Home) -> dict[str, object]:
    return tomllib.loads((home.path / "config.toml").read_text())


def test_list_shows_every_setting_with_value_origin_and_meaning(home: Home) -> None:
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text("brake_hops = 7\n")
    home.ok("up", env={"PALAVER_LOG_LEVEL": "debug"})

    shown = {line["key"]: line for line in home.ok("config", "list", "--json").lines}
    text = home.ok("config", "list").out

    assert list(shown) == list(KEYS)
    assert (shown["brake_hops"]["value"], shown["brake_hops"]["from"]) == (7, "file")
    assert (shown["log_level"]["value"], shown["log_level"]["from"]) == ("debug", "environment")
    assert (shown["hints"]["value"], shown["hints"]["from"]) == ("", "default")
    assert 'log_level = "debug" (environment)' in text
    assert all(line["meaning"] in text.replace("\n    ", " ") for line in shown.values())


def test_set_changes_one_setting_and_keeps_the_rest_of_the_file(bus: Home) -> None:
    (bus.path / "config.toml").write_text('# mine\nlog_level = "info"  # quiet\nbrake_hops = 9 # few\n')

    said = check_output(run_as_person(bus, "config", "set", "log_level", "debug"))

    assert said.out == 'log_level = "debug"\ntakes effect when the bus starts again: pal down, pal up\n'
    assert (bus.path / "config.toml").read_text() == (
        '# mine\nlog_level = "debug"  # quiet\nbrake_hops = 9 # few\n'
    )


def test_change_is_logged_and_takes_effect_at_the_next_start(bus: Home) -> None:
    changed = check_output(run_as_person(bus, "config", "set", "brake_hops", "9", "--json")).json
    before, noted = bus.ok("config", "get", "brake_hops"), bus.ok("config", "list", "--json").lines
    bus.ok("down")
    bus.ok("up")

    after = bus.ok("config", "get", "brake_hops")

    (event,) = bus.events("--type", "setting.changed")
    assert changed == {"key": "brake_hops", "value": 9, "old": 40, "takes_effect": "next start"}
    assert (event["from"], event["payload"]) == ("human", {"key": "brake_hops", "value": 9, "old": 40})
    assert (before.out, after.out) == ("40\n", "9\n")
    assert "it will be 9" in before.err
    assert [line["next"] for line in noted if "next" in line] == [9]
    assert after.err == ""


def test_environment_overrides_a_setting_and_set_reports_it(home: Home) -> None:
    home.ok("up", env={"PALAVER_STALE_AFTER_S": "5"})

    said = check_output(run_as_person(home, "config", "set", "stale_after_s", "9"))
    shown = home.ok("config", "get", "stale_after_s", "--json").json

    assert "PALAVER_STALE_AFTER_S" in said.err
    assert (shown["value"], shown["from"]) == (5, "environment")
    assert "next" not in shown


def test_only_a_person_changes_settings(bus: Home) -> None:
    nova = bus.shell()
    nova.ok("join", "--name", "nova")

    refused = [
        asking.pal("config", *words, "--json")
        for asking in (bus, nova)
        for words in (("set", "brake_hops", "0"), ("edit",))
    ]

    assert {one.error["error"] for one in refused} == {"not_allowed"}
    assert not (bus.path / "config.toml").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("colour", "red"),
        ("brake_hops", "many"),
        ("hints", "\x1b[2J"),
        ("hints", "x" * 1001),
        ("log_level", "x"),
    ],
)
def test_invalid_value_is_refused_and_nothing_is_written(bus: Home, key: str, value: str) -> None:
    refused = run_as_person(bus, "config", "set", key, value, "--json")

    assert refused.status == 1
    assert key in refused.error["message"]
    assert not (bus.path / "config.toml").exists()
    assert bus.events("--type", "setting.changed") == []


def test_unusable_file_is_not_changed_and_list_reports_it(bus: Home) -> None:
    (bus.path / "config.toml").write_text("colour = [")

    refused = run_as_person(bus, "config", "set", "brake_hops", "1")
    shown = bus.ok("config", "list")

    assert refused.status == 1
    assert (bus.path / "config.toml").read_text() == "colour = ["
    assert "the bus would not start again" in shown.err
    assert "brake_hops = 40 (default)" in shown.out


def test_unknown_key_cannot_be_shown(bus: Home) -> None:
    refused = bus.pal("config", "get", "colour")

    assert refused.status == 1
    assert "there is no setting 'colour'" in refused.err


def test_editor_runs_in_the_process_of_the_person(bus: Home) -> None:
    script = Path(bus.path.parent) / "editor.sh"
    script.write_text('#!/bin/sh\necho "$MINE" >"$0.said"\necho "brake_hops = 3" >>"$1"\n')
    script.chmod(0o700)

    ended = run_script_as_person(bus, f"MINE=yes EDITOR={script} pal config edit")

    assert (ended.status, ended.out) == (0, "takes effect when the bus starts again: pal down, pal up\n")
    assert Path(f"{script}.said").read_text() == "yes\n"
    assert of_file(bus) == {"brake_hops": 3}


def test_completion_lists_settings(bus: Home) -> None:
    assert bus.ok("__complete", "--", "config", "get", "brake_").out.split() == [
        "brake_hops",
        "brake_per_minute",
    ]
