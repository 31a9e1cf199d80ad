"""The setup of each harness."""

import json
import shlex

import pytest

from palaver.harness.codex import hooks as codex_hooks
from palaver.harness.gemini import hooks as gemini_hooks
from palaver.harness.registry import HOOKED
from palaver.harness.setup import INSTALLABLE, has_change, merge_change, setup_for, unmerge_change

PAL = ("/opt/my tools/pal", "--home", "/my bus")


@pytest.mark.parametrize("may_use_bus", [False, True])
@pytest.mark.parametrize("harness", INSTALLABLE)
def test_every_change_can_be_added_to_an_empty_file_and_removed(harness: str, may_use_bus: bool) -> None:
    for change in setup_for(harness, PAL, "/own", may_use_bus=may_use_bus).changes:
        made = merge_change(harness, change, "")

        assert unmerge_change(harness, change, made.text, made.made).text is None


@pytest.mark.parametrize(
    ("harness", "events"), [("codex", codex_hooks.EVENTS), ("gemini", gemini_hooks.EVENTS)]
)
def test_every_hook_runs_the_client_with_its_home(harness: str, events: tuple[str, ...]) -> None:
    change = setup_for(harness, PAL, "/own").changes[-1]

    hooks = json.loads(merge_change(harness, change, "{}").text)["hooks"]

    assert tuple(hooks) == events
    for event, groups in hooks.items():
        words = shlex.split(groups[0]["hooks"][0]["command"])
        assert words == ["exec", *PAL, "hook", harness, event, "--installed"]


def test_claude_plugin_runs_the_client_with_its_home() -> None:
    own = setup_for("claude", PAL, "/own").own

    hooks = json.loads(own["plugin/hooks/hooks.json"])["hooks"]
    commands = [shlex.split(group["hooks"][0]["command"]) for groups in hooks.values() for group in groups]
    (monitor,) = json.loads(own["plugin/monitors/monitors.json"])
    server = json.loads(own["plugin/.mcp.json"])["mcpServers"]["palaver"]
    assert commands == [["exec", *PAL, "hook", "claude", event, "--installed"] for event in hooks]
    waking = shlex.split(hooks["Stop"][0]["hooks"][1]["command"])
    assert waking == ["exec", *PAL, "rewake", "Stop", "--installed"]
    assert shlex.split(monitor["command"]) == ["exec", *PAL, "monitor"]
    assert [server["command"], *server["args"]] == [*PAL, "mcp"]
    assert not [text for text in own.values() if "pal-goes-here" in text]


def test_only_understood_hooks_are_installed() -> None:
    assert {"claude", "codex", "gemini"} <= set(HOOKED)


def test_whole_file_is_added_only_where_there_is_no_other_one() -> None:
    policy = setup_for("gemini", PAL, "/own", may_use_bus=True).changes[-1]

    assert policy.file == "policies/palaver.toml"
    assert has_change("gemini", policy, policy.whole)
    with pytest.raises(ValueError, match="only Palaver may write to it"):
        merge_change("gemini", policy, "# mine")
    kept = unmerge_change("gemini", policy, "# mine", ())
    assert (kept.text, kept.missing) == ("# mine", ("policies/palaver.toml",))
