"""`pal task` with the real client: create, show, update, complete, list."""

import pytest
from tests.daemon.stage import Home, Shell

import palaver


@pytest.fixture
def luna(home: Home) -> Shell:
    shell = home.shell()
    shell.ok("join", "--name", "luna")
    return shell


@pytest.fixture(scope="module")
def shared_luna(shared_bus: Home) -> Shell:
    shell = shared_bus.shell()
    shell.ok("join", "--name", "luna")
    return shell


@pytest.fixture
def nova(home: Home, luna: Shell) -> Shell:
    shell = home.shell()
    shell.ok("join", "--name", "nova")
    return shell


def made(luna: Shell, *words: str) -> str:
    """Create a task for nova and return its seq."""
    answer = luna.ok("task", "create", *(words or ("Refactor auth",)), "--assignee", "@nova", "--json").json
    return str(answer["task"]["seq"])


def test_task_reaches_its_assignee_and_its_completion_reaches_its_creator(luna: Shell, nova: Shell) -> None:
    created = luna.ok("task", "create", "Refactor auth", "--assignee", "@nova").out
    number = created.split()[2].rstrip(":")

    mail = nova.ok("recv", "--json").json
    updated = nova.ok("task", "update", number, "--status", "in_progress").out
    completed = nova.ok("task", "complete", number, "--summary", "Tests pass.").out

    assert created == f"created task {number} for nova: Refactor auth\nnotified nova\n"
    assert (mail["type"], mail["from"], mail["payload"]["title"]) == ("task.create", "luna", "Refactor auth")
    assert updated == f"updated task {number} for nova: Refactor auth\nnotified luna\n"
    assert completed == f"completed task {number} for nova: Refactor auth\nnotified luna\n"
    assert [line["type"] for line in luna.ok("recv", "--json").lines] == ["task.update", "task.complete"]
    shown = nova.ok("task", "show", number).out
    assert shown.splitlines()[:2] == [f"{number} Refactor auth", "completed for nova"]
    assert shown.endswith("\n\ncompleted by nova: Tests pass.\n")


def test_json_contains_all_fields_of_a_task(luna: Shell, nova: Shell) -> None:
    answer = luna.ok("task", "create", "t", "--description", "a\nb", "--assignee", "@workers", "--json").json

    task = luna.ok("task", "show", answer["id"], "--json").json

    assert task == answer["task"]
    assert (answer["delivered_to"], task["task_id"], task["seq"]) == (["nova"], answer["id"], answer["seq"])
    assert (task["title"], task["description"], task["status"]) == ("t", "a\nb", "open")
    assert (task["assignee"], task["assignees"], task["from"]) == ("@workers", ["nova"], "luna")
    assert (task["summary"], task["completed_by"]) == (None, None)
    assert luna.ok("task", "show", str(answer["seq"])).out.endswith("\n\na\nb\n")


def test_list_shows_open_tasks_and_supports_filters(luna: Shell, nova: Shell) -> None:
    first, second = made(luna, "first"), made(luna, "second")
    luna.ok("task", "create", "third", "--assignee", "luna")
    nova.ok("task", "complete", first)
    nova.ok("task", "update", second, "--status", "blocked")

    def titles(shell: Shell, *options: str) -> list[str]:
        return [line["title"] for line in shell.ok("task", "list", "--json", *options).lines]

    assert titles(luna) == ["second", "third"]
    assert titles(luna, "--all") == ["first", "second", "third"]
    assert titles(luna, "--mine") == ["third"]
    assert titles(luna, "--assignee", "nova", "--all") == ["first", "second"]
    assert titles(luna, "--status", "completed", "--status", "blocked") == ["first", "second"]
    assert titles(luna, "--all", "--limit", "1") == ["third"]
    lines = luna.ok("task", "list").out.splitlines()
    assert lines[0].split() == ["TASK", "STATUS", "FOR", "AGE", "WHAT"]
    assert lines[1].split()[:3] == [f"#{second}", "blocked", "nova"]


def test_empty_list_says_what_to_do(luna: Shell) -> None:
    assert luna.ok("task", "list").out == "no open tasks; 'pal task create TITLE' creates one\n"


def test_empty_list_of_a_filter_says_nothing_about_other_tasks(luna: Shell) -> None:
    luna.ok("task", "create", "open for all")

    for words in (("--mine",), ("--assignee", "luna"), ("--status", "blocked")):
        assert luna.ok("task", "list", *words).out == "no task matches these filters\n"


def test_create_reports_which_agents_were_notified(luna: Shell, nova: Shell) -> None:
    own = luna.ok("task", "create", "t", "--assignee", "luna").out.splitlines()
    group = luna.ok("task", "create", "t", "--assignee", "@observers").out.splitlines()
    path = luna.ok("task", "create", "t", "--assignee", "ticket/7").out.splitlines()
    many = luna.ok("task", "create", "t", "--to", "@nova", "--to", "@human").out.splitlines()

    assert own[1:] == ["no agent was notified"]
    assert group[1:] == ["no agent was notified", "@observers has no members now"]
    assert path[1:] == ["no agent was notified", "no agent is subscribed to ticket/7"]
    assert many[1:] == ["notified nova, human"]


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (["update", "1"], 2, "usage"),
        (["complete", "9999"], 1, "not_found"),
        (["show", "1"], 1, "not_found"),
        (["create", " "], 1, "bad_request"),
        (["create", "t", "--assignee", "zora"], 1, "unknown_recipient"),
        (["create", "t", "--to", "zora"], 1, "unknown_recipient"),
        (["list", "--assignee", "zora"], 1, "not_found"),
        (["list", "--mine", "--assignee", "luna"], 2, "usage"),
    ],
)
def test_invalid_task_command_is_refused(
    shared_luna: Shell, words: list[str], status: int, code: str
) -> None:
    refused = shared_luna.pal("task", *words, "--json")

    assert (refused.status, refused.error["error"]) == (status, code)


def test_unknown_task_is_reported(shared_luna: Shell) -> None:
    refused = shared_luna.pal("task", "update", "99999", "--status", "completed", "--json")

    assert refused.error["message"] == "there is no task 99999: 'pal task list' shows the tasks"


def test_completion_lists_the_seqs_of_open_tasks(luna: Shell, nova: Shell) -> None:
    done, open_ = made(luna, "first"), made(luna, "second")
    nova.ok("task", "complete", done)

    offered = luna.ok("__complete", "--", "task", "update", "").out.splitlines()

    assert offered == [f"{open_}\tsecond"]


def test_task_survives_a_restart_of_the_bus(home: Home, luna: Shell, nova: Shell) -> None:
    number = made(luna)
    home.kill()

    nova.ok("task", "complete", number)

    assert luna.ok("task", "show", number, "--json").json["status"] == "completed"


async def test_program_and_command_line_use_the_same_tasks(home: Home, luna: Shell) -> None:
    payload = {"title": "Refactor auth", "assignee": "luna", "points": 3}
    envelope = palaver.Envelope.new("task.create", "robo", payload, to=["luna"])

    async with palaver.connect("robo", home=home.path) as robo:
        await robo.put(envelope)
        task = luna.ok("task", "show", envelope.id, "--json").json
        luna.ok("task", "complete", envelope.id[-10:], "--summary", "done")
        notification = await anext(robo.messages())

    assert (task["task_id"], task["title"], task["from"]) == (envelope.id, "Refactor auth", "robo")
    assert (notification.sender, notification.text) == ("luna", f"task {task['seq']} is completed: done")
