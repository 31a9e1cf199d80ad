"""The plugin for OpenCode, as text; that it runs, the tests with the real program show."""

import json
import re

from palaver.agents.opencode.sessions import _HEARD
from palaver.harness.opencode_plugin import plugin_source


def test_the_command_stands_in_it_as_it_is_whatever_it_holds() -> None:
    command = ("/home/a b/python", "-I", 'quote"d', "${x}", "\\", "__COMMAND__")

    source = plugin_source(command)

    (found,) = re.findall(r"^const COMMAND = (.*)$", source, re.MULTILINE)
    assert json.loads(found) == list(command)


def test_everything_that_is_understood_is_passed_on() -> None:
    source = plugin_source(("x",))
    (block,) = re.findall(r"const HEARD = new Set\(\[(.*?)\]\)", source, re.DOTALL)

    passed_on = set(re.findall(r'"([a-z.]+)"', block))

    assert passed_on == _HEARD.keys() | {"session.created", "session.updated", "session.deleted"}
