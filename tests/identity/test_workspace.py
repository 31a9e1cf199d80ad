"""Workspaces: worktrees, symlinks, files, markers, submodules, homes, and file systems that hang."""

import asyncio
import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.limits import LIMIT_S

from palaver.errors import NotAPlace, TooSlow
from palaver.identity import workspace as places
from palaver.identity.workspace import MARKERS, Workspace, Workspaces, find_workspace, home_folders


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home" / "ann"
    made.mkdir(parents=True)
    return made


def _git(folder: Path, *arguments: str) -> None:
    """Run git without any user settings."""
    settings = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": str(folder)}
    name = ["-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(
        ["git", *name, "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], **settings},
    )


def _repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    _git(folder, "init", "-q")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def _find(path: Path, home: Path) -> Path:
    return Path(find_workspace(str(path), [str(home)]).path)


def _above(path: Path, home: Path) -> list[Path]:
    return [Path(one) for one in find_workspace(str(path), [str(home)]).above]


def test_folder_without_a_marker_is_its_own_workspace(home: Path) -> None:
    folder = home / "work" / "deep" / "er"
    folder.mkdir(parents=True)

    workspace = find_workspace(str(folder), [str(home)])

    assert workspace.chain == (str(folder), str(home / "work" / "deep"), str(home / "work"))


def test_file_is_replaced_by_its_folder(home: Path) -> None:
    (home / "work").mkdir()
    (home / "work" / "notes.txt").write_text("hello")

    assert _find(home / "work" / "notes.txt", home) == home / "work"


def test_symlink_is_replaced_by_its_target(home: Path) -> None:
    repository = _repository(home / "work")
    (repository / "src").mkdir()
    (home / "short").symlink_to(repository / "src")

    assert _find(home / "short", home) == repository
    assert _above(home / "short", home) == []


def test_checkout_is_found_from_any_depth_and_before_a_nearer_marker(home: Path) -> None:
    repository = _repository(home / "work")
    package = repository / "packages" / "web"
    package.mkdir(parents=True)
    (package / "package.json").touch()

    assert _find(package, home) == repository


@pytest.mark.parametrize("marker", MARKERS)
def test_nearest_marker_is_the_top_of_a_project(home: Path, marker: str) -> None:
    inner = home / "outer" / "inner" / "deep"
    inner.mkdir(parents=True)
    (home / "outer" / marker).touch()
    (home / "outer" / "inner" / marker).touch()

    assert _find(inner, home) == home / "outer" / "inner"
    assert _above(inner, home) == [home / "outer"]


@pytest.mark.parametrize("marker", MARKERS)
def test_folder_is_a_marker_only_of_a_version_control_system(home: Path, marker: str) -> None:
    inner = home / "outer" / "inner"
    inner.mkdir(parents=True)
    (home / "outer" / marker).mkdir()

    assert _find(inner, home) == (home / "outer" if marker in (".hg", ".jj", ".svn") else inner)


def test_link_to_a_file_is_a_marker(home: Path) -> None:
    inner = home / "outer" / "inner"
    inner.mkdir(parents=True)
    (home / "outer" / "CLAUDE.md").symlink_to("docs/AGENTS.md")

    assert _find(inner, home) == home / "outer"


def test_linked_worktree_belongs_to_the_main_checkout(home: Path) -> None:
    main = _repository(home / "main")
    _git(main, "worktree", "add", "-q", str(home / "elsewhere" / "tree"))
    (home / "elsewhere" / "tree" / "src").mkdir()

    workspace = find_workspace(str(home / "elsewhere" / "tree" / "src"), [str(home)])

    assert workspace.path == find_workspace(str(main), [str(home)]).path == str(main)
    assert str(home / "elsewhere") in workspace.above


def test_worktree_inside_the_main_checkout_belongs_to_it_too(home: Path) -> None:
    main = _repository(home / "main")
    _git(main, "worktree", "add", "-q", str(main / "trees" / "one"))

    workspace = find_workspace(str(main / "trees" / "one"), [str(home)])

    assert workspace == Workspace(str(main), (), (str(main / "trees" / "one"),))


def test_exact_folder_is_a_workspace_inside_its_checkout(home: Path) -> None:
    main = _repository(home / "src" / "main")
    inner = main / "services" / "api"
    inner.mkdir(parents=True)
    (inner / "a.py").touch()
    (home / "short").symlink_to(inner)
    services, src = str(main / "services"), str(home / "src")

    workspaces = [
        find_workspace(str(path), [str(home)], is_exact=True)
        for path in (inner, inner / "a.py", home / "short")
    ]

    assert workspaces == [Workspace(str(inner), (services, str(main), src))] * 3
    assert find_workspace(str(inner), [str(home)]) == Workspace(str(main), (src,), (str(inner), services))
    assert find_workspace(str(main), [str(home)], is_exact=True) == Workspace(str(main), (src,))


def test_exact_worktree_is_a_workspace_inside_its_main_checkout(home: Path) -> None:
    main = _repository(home / "main")
    tree = home / "trees" / "one"
    _git(main, "worktree", "add", "-q", str(tree))
    inner = tree / "src"
    inner.mkdir()

    deep = find_workspace(str(inner), [str(home)], is_exact=True)
    exact = find_workspace(str(tree), [str(home)], is_exact=True)

    assert deep == Workspace(str(inner), (str(tree), str(main), str(home / "trees")))
    assert exact == Workspace(str(tree), (str(main), str(home / "trees")))
    assert find_workspace(str(inner), [str(home)]).inside == (str(inner), str(tree))


def test_exact_folder_with_an_unprintable_name_is_refused(home: Path) -> None:
    main = _repository(home / "main")
    odd = main / "a\nb"
    odd.mkdir()

    assert find_workspace(str(odd), [str(home)]) == Workspace(str(main))
    with pytest.raises(NotAPlace, match="cannot be displayed"):
        find_workspace(str(odd), [str(home)], is_exact=True)


def test_worktrees_of_a_bare_repository_share_it(home: Path) -> None:
    main = _repository(home / "main")
    _git(home, "clone", "-q", "--bare", str(main), str(home / "bare.git"))
    for name in ("one", "two"):
        _git(home / "bare.git", "worktree", "add", "-q", "-b", name, str(home / name))

    assert _find(home / "one", home) == _find(home / "two", home) == home / "bare.git"


def test_worktrees_next_to_a_hidden_bare_repository_share_its_folder(home: Path) -> None:
    main = _repository(home / "main")
    (home / "work").mkdir()
    _git(home, "clone", "-q", "--bare", str(main), str(home / "work" / ".bare"))
    (home / "work" / ".git").write_text("gitdir: ./.bare\n")
    _git(home / "work" / ".bare", "worktree", "add", "-q", "-b", "one", str(home / "work" / "one"))

    assert _find(home / "work" / "one", home) == home / "work"


def test_submodule_is_its_own_workspace(home: Path) -> None:
    library = _repository(home / "library")
    main = _repository(home / "main")
    _git(main, "submodule", "add", "-q", str(library), "vendor/library")

    assert _find(main / "vendor" / "library", home) == main / "vendor" / "library"
    assert _above(main / "vendor" / "library", home) == [main / "vendor", main]


@pytest.mark.parametrize("named", ["", "..", "../.."])
def test_home_folder_and_its_parents_are_refused(home: Path, named: str) -> None:
    with pytest.raises(NotAPlace, match="name a folder inside it"):
        _find(home / named, home)


def test_root_is_refused_even_without_a_home() -> None:
    with pytest.raises(NotAPlace):
        find_workspace("/", [])


def test_repository_at_home_is_not_the_workspace_of_its_subfolders(home: Path) -> None:
    _git(home, "init", "-q")
    (home / "work" / "deep").mkdir(parents=True)

    assert _find(home / "work" / "deep", home) == home / "work" / "deep"


def test_worktree_whose_main_checkout_is_home_is_its_own_workspace(home: Path) -> None:
    _git(home, "init", "-q")
    _git(home, "commit", "-q", "--allow-empty", "-m", "first")
    _git(home, "worktree", "add", "-q", str(home / "tree"))

    assert _find(home / "tree", home) == home / "tree"


def test_pipe_named_git_is_skipped_without_blocking(home: Path) -> None:
    (home / "work").mkdir()
    os.mkfifo(home / "work" / ".git")

    assert _find(home / "work", home) == home / "work"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing of the kind",
        b"gitdir: nowhere\n",
        b"gitdir: \0\n",
        b"gitdir: " + b"x" * 5000,
        b"gitdir: \xff\xfe\n",
    ],
)
def test_invalid_git_file_is_skipped(home: Path, content: bytes) -> None:
    (home / "work" / "deep").mkdir(parents=True)
    (home / "work" / ".git").write_bytes(content)

    assert _find(home / "work" / "deep", home) == home / "work" / "deep"


def test_empty_git_folder_is_not_a_checkout(home: Path) -> None:
    (home / "work" / ".git").mkdir(parents=True)
    (home / "work" / "deep").mkdir()

    assert _find(home / "work" / "deep", home) == home / "work" / "deep"


def test_worktree_of_a_removed_repository_is_its_own_workspace(home: Path) -> None:
    main = _repository(home / "main")
    _git(main, "worktree", "add", "-q", str(home / "tree"))
    (main / ".git" / "worktrees" / "tree" / "commondir").write_text("../../../gone\n")

    assert _find(home / "tree", home) == home / "tree"


def test_folder_instead_of_a_git_file_is_not_read(home: Path) -> None:
    repository = _repository(home / "main")
    (repository / ".git" / "commondir").mkdir()

    assert _find(repository, home) == repository


@pytest.mark.parametrize("written", ["", "work", "./work", "~/work", "/with\0nothing"])
def test_relative_path_is_refused(written: str) -> None:
    with pytest.raises(NotAPlace, match="the absolute path"):
        find_workspace(written, [])


def test_missing_path_is_refused(home: Path) -> None:
    with pytest.raises(NotAPlace, match="No such file"):
        _find(home / "nowhere", home)


def test_cycle_of_symlinks_is_refused(home: Path) -> None:
    (home / "one").symlink_to(home / "two")
    (home / "two").symlink_to(home / "one")

    with pytest.raises(NotAPlace):
        _find(home / "one", home)


@pytest.mark.parametrize("name", [b"bad\xff", b"two\nlines", b"esc\x1b", b"\xe2\x80\xae"])
def test_folder_with_an_unprintable_name_is_refused_in_printable_text(home: Path, name: bytes) -> None:
    folder = os.path.join(os.fsencode(home), name)
    os.mkdir(folder)

    with pytest.raises(NotAPlace, match="cannot be displayed") as caught:
        find_workspace(os.fsdecode(folder), [str(home)])

    assert str(caught.value).encode("ascii")


@given(st.text(max_size=80))
def test_any_input_is_a_workspace_or_refused(written: str) -> None:
    try:
        found = find_workspace(f"/{written}", ["/nobody"])
    except NotAPlace:
        return

    assert os.path.isdir(found.path)
    assert found.path == os.path.realpath(found.path)


def test_home_folders_come_from_the_environment_and_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    found = home_folders()

    assert found[0] == str(tmp_path)
    assert len(found) == len(set(found))


def test_unknown_user_has_the_home_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)

    assert home_folders() == (str(tmp_path),)


async def test_find_does_not_block_the_loop(home: Path) -> None:
    (home / "work").mkdir()

    found = await Workspaces([str(home)]).find(str(home / "work"))

    assert found == Workspace(str(home / "work"))


async def test_home_of_the_caller_is_refused_too_but_not_its_parent(home: Path) -> None:
    own = home / "work" / "own"
    (own / "project").mkdir(parents=True)
    (own / "package.json").touch()
    (home / "link").symlink_to(own)
    workspaces = Workspaces([str(home)])

    inside = await workspaces.find(str(own / "project"), home=str(home / "link"))
    above = await workspaces.find(str(home / "work"), home=str(own))

    assert inside == Workspace(str(own / "project"))
    assert above == Workspace(str(home / "work"))
    assert await workspaces.find(str(own), home="own") == Workspace(str(own), (str(home / "work"),))
    with pytest.raises(NotAPlace, match="a home folder"):
        await workspaces.find(str(own), home=str(home / "link"))


async def test_error_is_passed_from_the_thread_unchanged(home: Path) -> None:
    with pytest.raises(NotAPlace):
        await Workspaces([str(home)]).find(str(home))


async def test_hanging_file_system_uses_its_thread_and_blocks_no_other_request(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "work").mkdir()
    go_on = threading.Event()
    real = places.find_workspace

    def hangs(path: str, homes: tuple[str, ...], *, is_exact: bool, home: str) -> Workspace:
        if path.endswith("stuck"):
            go_on.wait(LIMIT_S)
        return real(path, homes, is_exact=is_exact, home=home)

    monkeypatch.setattr(places, "find_workspace", hangs)
    found = Workspaces([str(home)], limit_s=0.05, threads=2)

    with pytest.raises(TooSlow, match="does not respond"):
        await found.find(str(home / "stuck"))
    await until_found(found, home / "work")
    with pytest.raises(TooSlow):
        await found.find(str(home / "stuck"))
    with pytest.raises(TooSlow):
        await found.find(str(home / "work"))
    go_on.set()
    await until_found(found, home / "work")


async def until_found(found: Workspaces, path: Path) -> None:
    """Find a workspace. Try again after `TooSlow`: on a busy machine a thread may be late."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with suppress(TooSlow):
                assert (await found.find(str(path))).path == str(path)
                return


async def test_cancelled_request_releases_its_thread(home: Path) -> None:
    (home / "work").mkdir()
    found = Workspaces([str(home)], threads=1)
    asked = asyncio.ensure_future(found.find(str(home / "work")))
    await asyncio.sleep(0)

    asked.cancel()

    assert (await found.find(str(home / "work"))).path == str(home / "work")


def test_folders_around_a_workspace_start_with_the_deepest() -> None:
    workspace = Workspace(path="/a/b", above=("/a",), inside=("/a/b/c/d", "/a/b/c"))

    assert workspace.around == ("/a/b/c/d", "/a/b/c", "/a/b", "/a")
