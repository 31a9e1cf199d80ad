"""A message whose content was lost from blobs/, with the real client."""

import pytest
from tests.daemon.stage import Home, JsonLine, Shell, wait_until

LARGE = "needle " + "hay " * 20_000


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


@pytest.fixture
def lost(bus: Home, nova: Shell) -> JsonLine:
    """Send a message and delete its content. Return the result of the send."""
    sent = bus.ok("send", "@nova", "--stdin", "--json", content=LARGE.encode()).json
    (blob,) = (bus.path / "blobs").iterdir()
    blob.unlink()
    return {**sent, "blob": blob.name}


def receipt(bus: Home, sent: JsonLine) -> JsonLine:
    line: JsonLine
    (line,) = bus.ok("receipts", str(sent["seq"]), "--json").json["receipts"]
    return line


def test_lost_message_is_not_delivered_and_not_counted_as_seen(
    bus: Home, nova: Shell, lost: JsonLine
) -> None:
    bus.ok("send", "@nova", "--", "whole")

    taken = nova.ok("recv", "--json").lines

    assert [message["text"] for message in taken] == ["whole"]
    wait_until(lambda: receipt(bus, lost)["state"] == "held")
    assert receipt(bus, lost)["reason"] == "its content is lost"


def test_lost_message_is_held_until_a_person_restores_its_file(
    bus: Home, nova: Shell, lost: JsonLine
) -> None:
    nova.ok("recv")
    wait_until(lambda: receipt(bus, lost)["state"] == "held")

    (line,) = bus.ok("pending", "--json").lines
    page = bus.ok("pending").out

    assert (line["held"], line["to"], line["text"]) == (lost["seq"], ["nova"], "its content is lost")
    assert "Restore its file in blobs/ ('pal doctor' names it), then release it." in page
    assert f"    pal release {lost['seq']} | pal show {lost['seq']}\n" in page


def test_views_of_a_lost_message_report_that_its_content_is_lost(
    bus: Home, nova: Shell, lost: JsonLine
) -> None:
    shown = nova.ok("show", str(lost["seq"]))
    read = nova.ok("show", str(lost["seq"]), "--json").json
    inbox = nova.ok("inbox")
    (line,) = nova.ok("inbox", "--json").lines

    assert shown.out.endswith("\n\n(its content is lost)\n")
    assert "(its content is lost)" in inbox.out
    for message in (read, line):
        assert (message["text"], message["missing_blob"]) == ("", lost["blob"])


def test_receipts_of_a_lost_message_come_from_the_ledger(bus: Home, nova: Shell, lost: JsonLine) -> None:
    before = receipt(bus, lost)

    nova.ok("ack", str(lost["seq"]))

    after = receipt(bus, lost)
    assert (before["name"], before["state"]) == ("nova", "queued")
    assert (after["name"], after["state"]) == ("nova", "seen")


def test_doctor_counts_and_names_missing_contents(bus: Home, lost: JsonLine) -> None:
    result = bus.pal("doctor", "--json")

    assert result.status == 1
    (check,) = [check for check in result.lines if "large content" in check.get("check", "")]
    assert check == {
        "kind": "check",
        "ok": False,
        "check": "1 of 1 large contents are lost: missing in blobs/, or changed",
        "advice": f"restore them from a backup: {lost['blob']}",
    }


def test_sql_sees_short_fields_and_names_of_a_large_message(bus: Home, nova: Shell) -> None:
    bus.ok("send", "@nova", "--stdin", content=LARGE.encode())
    clause = "delivered_to LIKE '%nova%' AND mentions IS NOT NULL"

    (found,) = bus.ok("events", "--sql", clause, "--json").lines

    assert found["payload"]["text"].startswith("needle")
