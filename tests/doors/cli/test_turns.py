"""The value that `pal turn set` stores, from its arguments."""

import pytest

from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import parse
from palaver.doors.cli.turns import wanted_config
from palaver.errors import UsageError


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["luna", "on"], ("luna", "", True)),
        (["luna", "off"], ("luna", "", False)),
        (["luna", "ci", "inherit"], ("luna", "ci", None)),
        (["luna", "on", "off"], ("luna", "on", False)),
        (["luna", "--json", "true"], ("luna", "", True)),
        (["luna", "ci", "--json", "null"], ("luna", "ci", None)),
        (["luna", "--json", '{"enabled":true,"x":1}'], ("luna", "", {"enabled": True, "x": 1})),
        (["luna", "[1]"], ("luna", "", [1])),
        (["luna", "--max-batch", "0"], ("luna", "", {"enabled": True, "maxBatchSize": 0})),
        (
            [
                *("luna", "ci", "on", "--triage-model", "m", "--debounce-ms", "5", "--max-batch", "7"),
                *("--triage-timeout", "10", "--timeout", "2m", "--accept", "a, b,", "--reject", "c"),
            ],
            (
                "luna",
                "ci",
                {
                    "enabled": True,
                    "triageModel": "m",
                    "debounceMs": 5,
                    "maxBatchSize": 7,
                    "triageTimeoutMs": 10_000,
                    "executionTimeoutMs": 120_000,
                    "accept": ["a", "b"],
                    "reject": ["c"],
                },
            ),
        ),
    ],
)
def test_value_is_a_word_json_or_options(words: list[str], wanted: tuple[str, str, object]) -> None:
    assert wanted_config(parse(TABLE, ["turn", "set", *words])) == wanted


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["luna"], "add on, off, inherit"),
        (["luna", "ci"], "'ci' is not a value: add on, off"),
        (["luna", "ci", "maybe"], "'maybe' is not on, off, inherit or JSON"),
        (["luna", "{"], "the configuration is not JSON"),
        (["luna", "[" * 5000], "the configuration is not JSON"),
        (["luna", "off", "--max-batch", "3"], "--max-batch is possible only with 'on'"),
        (["luna", "{}", "--accept", "a"], "--accept is possible only with 'on'"),
        (["luna", "--max-batch", "-1"], "--max-batch requires a whole number"),
        (["luna", "--timeout", "-1"], "--timeout requires a time"),
    ],
)
def test_other_arguments_are_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        wanted_config(parse(TABLE, ["turn", "set", *words]))

    assert sentence in str(refused.value)
