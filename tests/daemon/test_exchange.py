"""One message from a sender to a reader, with everything that may happen to it in between."""

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest
from tests.daemon.followers import Follower
from tests.daemon.stage import NOBODY, Home, Shell, check_output, finish, new_home


@pytest.fixture
def nova(bus: Home) -> Shell:
    """A shell that has joined as nova."""
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


@pytest.fixture(scope="module")
def long_lived() -> Iterator[Home]:
    with new_home() as home:
        home.shell().ok("join", "--name", "nova")
        yield home


@pytest.fixture
def strict(long_lived: Home) -> Iterator[Home]:
    """A bus with nova on it, for refused messages: nothing may be stored."""
    before = long_lived.texts()

    yield long_lived

    assert long_lived.texts() == before


def state(home: Home, seq: int, name: str = "nova") -> dict[str, object]:
    """Return a recipient's receipt of a message."""
    (line,) = [one for one in home.ok("receipts", str(seq), "--json").json["receipts"] if one["name"] == name]
    found: dict[str, object] = line
    return found


def test_message_is_sent_and_received_and_its_receipt_shows_it(bus: Home, nova: Shell) -> None:
    reader = nova.begin("recv", "--wait")

    sent = bus.ok("send", "@nova", "--json", "--", "hello").json
    received = check_output(reader.end())

    assert sent["delivered_to"] == ["nova"]
    assert received.out == f"<pal>[new message #{sent['seq']}] script → nova: hello</pal>\n"
    line = state(bus, sent["seq"])
    assert (line["state"], line["grade"], line["lane"]) == ("seen", "flushed", "recv")


def test_agent_cannot_acknowledge_the_mail_of_another_agent(bus: Home, nova: Shell) -> None:
    kira = bus.shell()
    kira.ok("join", "--name", "kira")
    sent = bus.ok("send", "@nova", "--json", "--", "hello").json

    refused = kira.pal("ack", str(sent["seq"]), "--json")

    assert (refused.status, refused.error["error"]) == (1, "bad_request")
    assert f"#{sent['seq']} was not sent to kira" in refused.error["message"]
    assert state(bus, sent["seq"])["state"] == "queued"
    assert nova.ok("ack", str(sent["seq"]), "--json").json["messages"] == [sent["seq"]]
    assert nova.ok("ack", str(sent["seq"]), "--json").json["messages"] == []


def test_unread_message_is_queued(bus: Home, nova: Shell) -> None:
    sent = bus.ok("send", "@nova", "--json", "--", "hello").json

    assert state(bus, sent["seq"])["state"] == "queued"


def test_reply_makes_the_message_answered(bus: Home, nova: Shell) -> None:
    luna = bus.shell()
    luna.ok("join", "--name", "luna")
    asked = luna.ok("send", "@nova", "--intent", "request", "--json", "--", "ready?").json["seq"]
    nova.ok("recv")

    answer = nova.ok("send", "--reply-to", str(asked), "--json", "--", "yes").json

    assert answer["delivered_to"] == ["luna"]
    assert state(bus, asked)["state"] == "answered"


@pytest.mark.parametrize("kills", [(0,), (1,), (2,), (3,), (4,), (0, 1, 2, 3, 4)], ids=str)
def test_result_is_the_same_when_the_daemon_is_killed_between_two_steps(
    home: Home, kills: tuple[int, ...]
) -> None:
    steps = iter(range(10))

    def killed() -> None:
        if next(steps) in kills:
            home.kill()

    home.ok("up")
    killed()
    nova = home.shell()
    nova.ok("join", "--name", "nova")
    killed()
    sent = home.ok("send", "@nova", "--json", "--", "hello").json
    killed()
    queued = state(home, sent["seq"])
    received = nova.ok("recv", "--json").json
    killed()
    seen = state(home, sent["seq"])
    killed()
    again = nova.ok("recv", "--json")

    assert (received["seq"], received["text"], received["from"]) == (sent["seq"], "hello", "script")
    assert (queued["state"], seen["state"], seen["grade"]) == ("queued", "seen", "flushed")
    assert again.out == ""
    assert home.texts() == ["hello"]


def test_unknown_recipient_is_refused_with_nearest_names(strict: Home) -> None:
    refused = strict.pal("send", "@nowa", "@nova", "@zzz", "--json", "--", "x")

    assert refused.status == 1
    assert refused.error["error"] == "unknown_recipient"
    assert refused.error["details"]["unmatched"] == {"@nowa": ["nova"], "@zzz": []}
    assert strict.pal("send", "@nowa", "--", "x").err == (
        "pal: no such agent: @nowa (did you mean nova?); nothing was sent. 'pal list' shows the agents\n"
    )


def test_body_of_100000_bytes_is_unchanged(bus: Home, nova: Shell) -> None:
    body = "ä" * 50_000

    bus.ok("send", "@nova", "--stdin", content=body.encode())

    assert nova.ok("recv", "--json").json["text"] == body


def test_size_is_reported_only_for_a_body_that_was_read_completely(strict: Home) -> None:
    body = b"x" * 500_000

    piped = strict.pal("send", "@nova", "--stdin", "--json", content=body)
    small = strict.pal("send", "@nova", "--json", "--", b"x" * 100_002)

    assert "standard input is larger than the limit of 100000 bytes" in piped.error["message"]
    assert (piped.error["details"]["size_bytes"], piped.error["details"]["limit_bytes"]) == (None, 100_000)
    assert small.error["details"]["size_bytes"] == 100_002


def test_body_over_the_limit_is_refused_from_every_source(strict: Home) -> None:
    body = b"x" * 100_001
    path = strict.spare_path()
    path.write_bytes(body)

    refused = [
        strict.pal("send", "@nova", "--stdin", "--json", content=body),
        strict.pal("send", "@nova", "--file", str(path), "--json"),
        strict.pal("send", "@nova", "--json", "--", body),
    ]

    assert [(one.status, one.error["error"]) for one in refused] == [(1, "message_too_large")] * 3


@pytest.mark.parametrize("character", ["\x1b", "\x00", "\x7f", "\x9b", "\u202e"], ids=ascii)
def test_body_with_a_forbidden_character_is_refused(strict: Home, character: str) -> None:
    refused = strict.pal("send", "@nova", "--stdin", "--json", content=f"a{character}b".encode())

    assert (refused.status, refused.error["error"]) == (1, "bad_text")


@pytest.mark.parametrize("how", [["--stdin"], ["--", b"\xff\xfe"]], ids=["stdin", "argument"])
def test_body_that_is_not_utf8_is_refused(strict: Home, how: list[str | bytes]) -> None:
    refused = strict.pal("send", "@nova", *how, content=b"\xff\xfe")

    assert refused.status in (1, 2)
    assert "not UTF-8" in refused.err


def test_file_is_read_by_the_client_in_its_working_directory(bus: Home, nova: Shell) -> None:
    folder = bus.spare_path()
    folder.mkdir()
    (folder / "note").write_text("from a file")

    bus.ok("send", "@nova", "--file", "note", cwd=folder)

    assert nova.ok("recv", "--json").json["text"] == "from a file"


@pytest.mark.parametrize("how", ["absolute", "up", "link"])
def test_agent_under_a_harness_sends_only_files_of_its_directory(bus: Home, nova: Shell, how: str) -> None:
    folder, secret = bus.spare_path(), bus.spare_path()
    folder.mkdir()
    secret.write_text("from outside")
    (folder / "inside").write_text("from inside")
    (folder / "link").symlink_to(secret)
    path = {"absolute": str(secret), "up": f"../{secret.name}", "link": "link"}[how]
    luna = bus.shell()
    luna.ok("join", "--name", "luna", "--harness", "claude")
    here, send = f"cd {shlex.quote(str(folder))}", "pal send @nova --json"

    refused = luna.begin_script(f"{here}; {send} --file {shlex.quote(path)}").end()
    by_mark = luna.begin_script(f"{here}; CLAUDECODE=1 {send} --file {shlex.quote(path)}").end()
    inside = luna.begin_script(f"{here}; {send} --file inside").end()
    piped = luna.begin_script(f"{here}; {send} - < {shlex.quote(path)}").end()
    by_script = bus.pal("send", "@nova", "--file", path, cwd=folder)

    assert [one.error["error"] for one in (refused, by_mark)] == ["not_allowed"] * 2
    assert f"pal send … --stdin < {path}" in refused.error["message"]
    assert [one.status for one in (inside, piped, by_script)] == [0, 0, 0]
    texts = [one["text"] for one in nova.ok("recv", "--json").lines]
    assert texts == ["from inside", "from outside", "from outside"]


@pytest.mark.parametrize("path", ["missing", "."], ids=["missing", "directory"])
def test_unreadable_file_is_refused_with_the_reason(strict: Home, path: str) -> None:
    refused = strict.pal("send", "@nova", "--file", path, "--json")

    assert (refused.status, refused.error["error"]) == (1, "not_found")
    assert path in refused.error["message"]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_daemon_does_not_read_a_file_that_the_caller_may_not_read(strict: Home) -> None:
    path = strict.spare_path()
    path.write_text("secret")
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o600)
    without_rights = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]

    refused = strict.pal("send", "@nova", "--file", str(path), "--json", before=without_rights)

    assert refused.status == 1
    assert "Permission denied" in refused.error["message"]


def test_message_that_could_not_be_written_out_stays_unread(bus: Home, nova: Shell) -> None:
    bus.ok("send", "@nova", "--", "keep me")

    full = nova.begin_script("pal recv >/dev/full").end()
    closed = nova.begin_script("pal recv >&-").end()

    assert (full.status, full.err) == (1, "pal: standard output: No space left on device\n")
    assert closed.status == 1
    assert nova.ok("recv", "--json").json["text"] == "keep me"


def test_message_written_into_a_closed_pipe_stays_unread(bus: Home, nova: Shell) -> None:
    sent = bus.ok("send", "@nova", "--json", "--", "keep me").json

    # The reader of the pipe must end before the client writes, so the script waits for the end of `true`.
    cut = nova.begin_script(
        "exec 7> >(true); while [ -d /proc/$! ]; do :; done; pal recv >&7; s=$?; exec 7>&-; (exit $s)"
    ).end()

    assert cut.status == 128 + 13
    assert state(bus, sent["seq"])["state"] == "queued"
    assert nova.ok("recv", "--json").json["text"] == "keep me"


def test_message_stays_unread_when_its_reader_is_killed_before_output(bus: Home, nova: Shell) -> None:
    sent = bus.ok("send", "@nova", "--stdin", "--json", content=b"x" * 90_000).json
    pipe = bus.spare_path()
    os.mkfifo(pipe)
    job = nova.begin_script(f"pal recv >{pipe} & echo $!; wait $!")
    # A pipe holds less than the message: the client has begun to write it and is blocked.
    with open(pipe, "rb", buffering=0) as slow:
        assert slow.read(1) == b"<"

        os.kill(int(job.line()), signal.SIGKILL)
        job.end()

    assert state(bus, sent["seq"])["state"] == "queued"
    assert len(nova.ok("recv", "--json").json["text"]) == 90_000


def test_wait_without_a_result_ends_with_status_3(bus: Home, nova: Shell) -> None:
    ended = [
        nova.pal("recv", "--wait", "--timeout", "0.05"),
        nova.pal("recv", "--timeout", "50ms"),
        nova.pal("recv", "--follow", "--timeout", "50ms"),
        nova.pal("recv", "--peek", "--wait", "--timeout", "50ms"),
        bus.pal("events", "--type", "message", "--wait", "0.05"),
    ]

    assert [(one.status, one.out, one.err) for one in ended] == [(3, "", "")] * 5


def test_recv_without_mail_ends_at_once_with_status_0(bus: Home, nova: Shell) -> None:
    ended = nova.ok("recv")

    assert (ended.out, ended.err) == ("", "")


def test_peek_marks_nothing(bus: Home, nova: Shell) -> None:
    seqs = [bus.ok("send", "@nova", "--json", "--", text).json["seq"] for text in ("one", "two")]

    peeked = nova.ok("recv", "--peek", "--json").lines
    later = nova.ok("recv", "--after", str(seqs[0]), "--json").lines

    assert [line["text"] for line in peeked] == ["one", "two"]
    assert [line["text"] for line in later] == ["two"]
    assert [state(bus, seq)["state"] for seq in seqs] == ["queued", "queued"]


def test_follow_after_a_seq_shows_every_message_and_marks_none(bus: Home, nova: Shell) -> None:
    first = bus.ok("send", "@nova", "--json", "--", "one").json["seq"]
    for text in ("two", "three"):
        bus.ok("send", "@nova", "--", text)
    nova.ok("recv", "--limit", "2")
    follower = Follower(bus, "recv", "--as", "nova", "--follow", "--after", str(first), "--json")
    assert [follower.line()["text"] for _ in range(2)] == ["two", "three"]

    last = bus.ok("send", "@nova", "--json", "--", "four").json["seq"]
    assert follower.line()["text"] == "four"
    status, _, err = follower.end()

    assert (status, err.decode()) == (0, f"cursor_event_seq={last}\n")
    assert [json.loads(line)["text"] for line in nova.ok("recv", "--json").out.splitlines()] == [
        "three",
        "four",
    ]
    refused = nova.pal("recv", "--follow", "--peek", "--json")
    assert (refused.status, refused.error["error"]) == (2, "usage")


def test_peek_sees_the_oldest_unread_message_after_many_read_ones(bus: Home, nova: Shell) -> None:
    for number in range(60):
        bus.ok("send", "@nova", "--", f"old {number}")
    nova.ok("recv", "--limit", "100")
    bus.ok("send", "@nova", "--", "new")

    peeked = nova.ok("recv", "--peek", "--limit", "1", "--json").lines

    assert [line["text"] for line in peeked] == ["new"]


def test_limit_leaves_the_rest_and_reports_their_number(bus: Home, nova: Shell) -> None:
    for number in range(3):
        bus.ok("send", "@nova", "--", f"number {number}")

    first = nova.ok("recv", "--limit", "1").out
    rest = nova.ok("recv", "--json").lines

    assert "number 0" in first
    assert "+2 more" in first
    assert [line["text"] for line in rest] == ["number 1", "number 2"]


def test_filters_of_recv_leave_other_mail_alone(bus: Home, nova: Shell) -> None:
    bus.ok("send", "@nova", "--thread", "pr-1", "--", "one")
    bus.ok("send", "@nova", "--thread", "pr-2", "--", "two")

    taken = nova.ok("recv", "--thread", "pr-2", "--json").lines

    assert [line["text"] for line in taken] == ["two"]
    assert [line["text"] for line in nova.ok("recv", "--json").lines] == ["one"]


def test_several_readers_receive_each_message_only_once(bus: Home, nova: Shell) -> None:
    readers = [bus.start("recv", "--wait", "--json", "--as", "nova") for _ in range(3)]
    sent: list[str] = []

    while any(reader.poll() is None for reader in readers):  # the first reader may take more than one
        sent.append(f"number {len(sent):05}")
        bus.ok("send", "@nova", "--", sent[-1])
    read = [line["text"] for reader in readers for line in finish(reader).lines]
    rest = [line["text"] for line in nova.ok("recv", "--limit", "100000", "--json").lines]

    assert sorted(read + rest) == sent


def test_expired_message_is_not_received(bus: Home, nova: Shell) -> None:
    waiter = bus.start("events", "--type", "delivery", "--wait", "30", "--json", "--after", "0")
    sent = bus.ok("send", "@nova", "--expires", "1ms", "--json", "--", "too late").json

    expired = finish(waiter).lines

    assert expired[0]["payload"]["state"] == "expired"
    assert nova.ok("recv").out == ""
    assert state(bus, sent["seq"])["state"] == "expired"


def test_dry_run_stores_nothing(strict: Home) -> None:
    shown = strict.ok("send", "@nova", "--dry-run", "--", "x").out

    assert shown == "would go to nova\n"


def test_same_id_sent_twice_is_one_message(bus: Home, nova: Shell) -> None:
    id_ = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

    first = bus.ok("send", "@nova", "--id", id_, "--json", "--", "once").json
    second = bus.ok("send", "@nova", "--id", id_, "--json", "--", "once").json

    assert (first["seq"], first["id"]) == (second["seq"], id_)
    assert second["repeat"] is True
    assert bus.texts() == ["once"]


def test_unread_open_pipe_blocks_only_its_own_command(bus: Home, nova: Shell) -> None:
    for _ in range(5):
        bus.ok("send", "@nova", "--stdin", content=b"x" * 90_000)
    stuck = bus.start("events", "--all", "--json")

    sent = bus.ok("send", "@nova", "--", "still here")

    assert sent.status == 0
    assert len(finish(stuck).lines) >= 7


def test_standard_input_is_read_only_when_requested(bus: Home, nova: Shell) -> None:
    process = bus.start("send", "@nova", "--", "text", stdin=subprocess.PIPE)

    sent = finish(process, b"")

    assert sent.status == 0
    assert bus.texts() == ["text"]
