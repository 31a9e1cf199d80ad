"""The list of agents: activity, folder and room of each, its formats, and the agents that have left."""

import pytest
from tests.daemon.stage import Home, Shell, check_output, run_as_person
from tests.daemon.tmux import HAS_TMUX, in_folder, pane


@pytest.fixture
def luna(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "luna")
    return shell


def test_list_shows_tool_folder_and_room(bus: Home, luna: Shell) -> None:
    folder = bus.path.parent / "shop"
    (folder / ".git").mkdir(parents=True)
    room = luna.begin_script(f"cd {folder} && pal room join --json").end().json["room_id"]
    luna.ok("status", "set", "active", "--tool", "Bash", "--detail", "Bash: make test")

    (agent,) = bus.ok("list", "--json").lines
    title, line = bus.ok("list").out.splitlines()

    assert (agent["tool"], agent["detail"]) == ("Bash", "Bash: make test")
    assert (agent["cwd"], agent["rooms"]) == (str(bus.path.parent), [room])
    assert title.split() == ["NAME", "STATUS", "FOR", "UNREAD", "DOING", "FOLDER", "ROOM"]
    assert "tool: Bash: make test" in line
    assert line.endswith(f"  ~       {room}")


def test_list_shows_a_tool_without_its_name_in_the_detail(bus: Home, luna: Shell) -> None:
    luna.ok("status", "set", "active", "--tool", "Bash", "--detail", "make test")
    assert "  tool: Bash: make test  " in bus.ok("list").out

    luna.ok("status", "set", "active", "--tool", "Edit")

    assert "  tool: Edit  " in bus.ok("list").out


def test_list_shows_a_tag_that_is_not_in_the_name(bus: Home, luna: Shell) -> None:
    bus.shell().ok("join", "--name", "nova", "--tag", "api")
    assert "TAG" not in bus.ok("list").out

    luna.ok("tag", "luna", "db")

    title, nova, own = bus.ok("list").out.splitlines()
    assert title.split()[:5] == ["NAME", "STATUS", "FOR", "UNREAD", "TAG"]
    assert (nova.split()[0], "  db  " in nova, "  db  " in own) == ("api-nova", False, True)
    assert "worker, tag db, " in bus.ok("list", "-v").out
    assert "role worker, tag db\n" in bus.ok("status", "luna").out


def test_end_of_a_tool_is_shown(bus: Home, luna: Shell) -> None:
    luna.ok("status", "set", "active", "--tool", "Bash", "--detail", "Bash: make test")
    luna.ok("status", "set", "idle")

    (agent,) = bus.ok("list", "--json").lines

    assert "tool" not in agent
    assert "DOING" not in bus.ok("list").out


def test_names_and_formats_are_one_line_each(bus: Home, luna: Shell) -> None:
    nova = bus.shell()
    nova.ok("join", "--name", "nova", "--tag", "api")
    nova.ok("send", "@luna", "--", "hello")

    assert bus.ok("list", "--names").out.splitlines() == ["api-nova", "luna"]
    assert bus.ok("list", "--names", "--json").lines == [
        {"agent": name, "name": name} for name in ("api-nova", "luna")
    ]
    assert bus.ok("list", "--format", "{name} {unread}").out.splitlines() == ["api-nova 0", "luna 1"]
    agent = bus.ok("list", "--json").lines[0]
    assert bus.ok("list", "--format", "{agent} {ts}").out.splitlines()[0] == f"api-nova {agent['ts']}"
    assert bus.ok("list", "--format", r"{base}\t{tag}\t{present}\t{rooms}{pid").out.splitlines() == [
        "nova\tapi\tyes\t{pid",
        "luna\t\tyes\t{pid",
    ]


def test_unknown_field_of_a_format_is_refused_with_the_known_ones(bus: Home) -> None:
    refused = bus.pal("list", "--format", "{nome}")

    assert refused.status == 2
    assert "--format has no field {nome}; the fields are name, base, tag," in refused.err
    assert "choose one" in bus.pal("list", "--format", "{name}", "--json").error["message"]


def test_stopped_agents_are_listed_latest_first(bus: Home, luna: Shell) -> None:
    nova = bus.shell()
    nova.ok("join", "--name", "nova")
    assert bus.ok("list", "--stopped").out == "no agent has left\n"

    luna.ok("leave")
    nova.ok("status", "set", "exited", "--detail", "done")

    assert bus.ok("list").out == "no agents; to start one, run 'pal claude --name luna'\n"
    assert bus.ok("list", "--stopped", "--names").out.splitlines() == ["nova", "luna"]
    assert "done" in bus.ok("list", "--stopped").out
    assert [agent["left"] for agent in bus.ok("list", "--stopped", "--json").lines] == [True, True]


def test_program_in_a_terminal_is_listed_with_its_folder(bus: Home) -> None:
    (name,) = check_output(run_as_person(bus, "run", "--detach", "--", "cat")).out.split()

    assert bus.ok("list", "--format", "{name} {cwd}").out.split()[0] == name
    assert bus.ok("list", "--json").json["cwd"]


@pytest.mark.skipif(not HAS_TMUX, reason="needs tmux")
def test_list_fits_the_screen_of_a_person(bus: Home, luna: Shell) -> None:
    luna.ok("status", "set", "active", "--tool", "Bash", "--detail", f"Bash: {'make ' * 30}")

    with pane(bus, in_folder(bus.path.parent, "list"), columns=60) as person:
        screen = person.shows("ended with 0")

    assert "DOING" in screen[0]
    assert screen[1].startswith("luna")
    assert "tool: Bash: make" in screen[1]
    assert screen[2].startswith("ended with 0")
