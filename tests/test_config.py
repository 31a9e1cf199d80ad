"""The table of settings."""

from dataclasses import fields
from pathlib import Path

import pytest

from palaver.config import DEFAULTS, KEYS, MEANINGS, NOT_SETTINGS, Settings, load, typed
from palaver.errors import BadRequest


def test_without_a_file_every_setting_has_its_default(tmp_path: Path) -> None:
    assert load(tmp_path, {}).settings == Settings()


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('log_level = "debug"\nlog_max_bytes = 10\n')

    settings = load(tmp_path, {"PALAVER_LOG_LEVEL": "error", "HOME": "/x"}).settings

    assert settings == Settings(log_level="error", log_max_bytes=10)


def test_number_from_the_environment_is_a_number(tmp_path: Path) -> None:
    assert load(tmp_path, {"PALAVER_SQL_TIMEOUT_MS": "50"}).settings.sql_timeout_ms == 50


@pytest.mark.parametrize(("key", "most"), [("approvals_wait_s", 3600), ("approvals", 1), ("http_remote", 1)])
def test_setting_may_be_at_its_limit(key: str, most: int) -> None:
    assert typed(key, str(most)) == typed(key, most) == most


def test_other_palaver_variables_are_not_settings(tmp_path: Path) -> None:
    assert load(tmp_path, dict.fromkeys(NOT_SETTINGS, "x")).settings == Settings()


_FROM_FILE = [
    "approvals",
    "auto_turn_limit_per_hour",
    "approvals_wait_s",
    "brake_hops",
    "brake_per_minute",
    "http_remote",
    "web_approvals",
]


@pytest.mark.parametrize("key", [*_FROM_FILE, "hints", "http", "http_hosts", "room_wakes"])
def test_settings_of_the_human_are_not_read_from_the_environment(tmp_path: Path, key: str) -> None:
    value = 1 if key in _FROM_FILE else "human"
    (tmp_path / "config.toml").write_text(f"{key} = {value!r}\n")

    assert getattr(load(tmp_path, {}).settings, key) == value
    with pytest.raises(BadRequest, match=f"use 'pal config set {key}'"):
        load(tmp_path, {f"PALAVER_{key.upper()}": "1"})


def test_unknown_key_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="'colour'"):
        load(tmp_path, {"PALAVER_COLOUR": "red"})


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("log_level = 3", "log_level"),
        ('log_level = "loud"', "log_level"),
        ("log_max_bytes = true", "log_max_bytes"),
        ("log_max_bytes = -1", "log_max_bytes"),
        ('sql_timeout_ms = "soon"', "sql_timeout_ms"),
        ("[log_max_bytes]", "log_max_bytes"),
        ("log_level", "config.toml"),
        ("brake_hops = 1000000000000", "brake_hops"),
        ('brake_hops = "\u0661"', "brake_hops"),
        ("hints = 3", "hints"),
        ('room_wakes = "cats"', "room_wakes"),
        ("approvals = 2", "'approvals' must be 0 or 1, not 2"),
        ('codex_hooks = "5"', "'codex_hooks' must be 0 or 1, not 5"),
        ("http_remote = 2", "'http_remote' must be 0 or 1"),
        ('auto_turn_command = "my \'agent"', "auto_turn_command"),
        ('auto_turn_triage_command = "my \'agent"', "auto_turn_triage_command"),
        ('auto_turn_triage_command = ""', "auto_turn_triage_command"),
        ("auto_turn_max_batch = 51", "auto_turn_max_batch"),
        ("approvals_wait_s = 3601", "'approvals_wait_s' must be at most 3600, not 3601"),
    ],
)
def test_invalid_value_is_an_error_that_names_its_key(tmp_path: Path, line: str, named: str) -> None:
    (tmp_path / "config.toml").write_text(line)

    with pytest.raises(BadRequest, match=named):
        load(tmp_path, {})


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = " + b"[" * 5000, b"a = " + b"1" * 5000])
def test_file_that_cannot_be_parsed_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.toml").write_bytes(content)

    with pytest.raises(BadRequest, match="cannot be read"):
        load(tmp_path, {})


def test_origin_of_each_value_is_known(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("brake_hops = 1\nlog_max_bytes = 10\n")

    loaded = load(tmp_path, {"PALAVER_LOG_MAX_BYTES": "20"})

    others = set(KEYS) - {"brake_hops", "log_max_bytes"}
    assert loaded.settings.log_max_bytes == 20
    assert (loaded.origins["brake_hops"], loaded.origins["log_max_bytes"]) == ("file", "environment")
    assert {loaded.origins[key] for key in others} == {"default"}


def test_every_setting_has_a_sentence_and_a_valid_default() -> None:
    assert all(meaning.endswith(".") and meaning[0].isalpha() for meaning in MEANINGS.values())
    assert {key: typed(key, value) for key, value in DEFAULTS.items()} == DEFAULTS


def test_every_setting_is_a_text_or_a_number() -> None:
    assert {field.type for field in fields(Settings)} <= {str, int}
