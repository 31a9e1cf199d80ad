"""The public names of the package, and that they are imported only when used."""

import inspect
import subprocess
import sys

import pytest
from tests.limits import LIMIT_S

import palaver


def test_every_listed_name_exists() -> None:
    for name in palaver.__all__:
        assert getattr(palaver, name) is not None


def test_dir_lists_exactly_the_public_names() -> None:
    assert dir(palaver) == sorted(palaver.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'disconnect'"):
        palaver.disconnect  # type: ignore[attr-defined]  # noqa: B018 - the look-up is the test


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import sys, palaver; print([name for name in sys.modules if name.startswith('palaver.')])"

    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, check=True, timeout=LIMIT_S
    )

    assert done.stdout == b"[]\n"


def test_public_names_have_the_documented_signatures() -> None:
    envelope = palaver.Envelope.new("task.create", "luna", {"title": "x"}, to=["nova"])

    assert palaver.Envelope.from_json(envelope.to_json()) == envelope
    assert palaver.matches_recipient(envelope, "nova", "worker")
    assert palaver.path_matches("agent/*", "agent/nova")
    assert "name" in inspect.signature(palaver.connect).parameters
    sending = ("send", "messages", "put", "events", "follow", "agents", "receipts", "set_status")
    paths = ("route", "broadcast", "subscribe", "unsubscribe", "subscriptions", "receive", "history")
    for method in (*sending, *paths, "dead_letters", "clear_dead_letters", "routed"):
        assert inspect.getdoc(getattr(palaver.Connection, method))
