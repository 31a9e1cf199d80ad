"""The source of the OpenCode plugin; tests with the real program run it."""

import json
import re

from palaver.harness.opencode.integration import _HEARD
from palaver.harness.opencode.launch import plugin_source


def test_command_is_embedded_unchanged() -> None:
    command = ("/home/a b/python", "-I", 'quote"d', "${x}", "\\", "__COMMAND__")

    source = plugin_source(command)

    (found,) = re.findall(r"^const COMMAND = (.*)$", source, re.MULTILINE)
    assert json.loads(found) == list(command)


def test_every_understood_event_is_passed_on() -> None:
    source = plugin_source(("x",))
    (block,) = re.findall(r"const EVENTS = new Set\(\[(.*?)\]\)", source, re.DOTALL)

    passed_on = set(re.findall(r'"([a-z.]+)"', block))

    assert passed_on == _HEARD.keys() | {"session.created", "session.updated", "session.deleted"}
