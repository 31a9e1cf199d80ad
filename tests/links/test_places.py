"""Places: worktrees, symlinks, files, markers, submodules, homes, and file systems that do not answer."""

import asyncio
import os
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.limits import LIMIT_S

from palaver.errors import NotAPlace, TooSlow
from palaver.links import places
from palaver.links.places import MARKERS, Place, Places, find_place, home_folders


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home" / "ann"
    made.mkdir(parents=True)
    return made


def _git(folder: Path, *arguments: str) -> None:
    """Run git as it is found, with nobody's settings."""
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
    return Path(find_place(str(path), [str(home)]).path)


def _above(path: Path, home: Path) -> list[Path]:
    return [Path(one) for one in find_place(str(path), [str(home)]).above]


def test_a_folder_without_a_mark_is_its_own_place_and_those_above_it_end_below_home(home: Path) -> None:
    folder = home / "work" / "deep" / "er"
    folder.mkdir(parents=True)

    place = find_place(str(folder), [str(home)])

    assert place.chain == (str(folder), str(home / "work" / "deep"), str(home / "work"))


def test_a_file_stands_for_its_folder(home: Path) -> None:
    (home / "work").mkdir()
    (home / "work" / "notes.txt").write_text("hello")

    assert _find(home / "work" / "notes.txt", home) == home / "work"


def test_a_symlink_stands_for_what_it_leads_to(home: Path) -> None:
    repository = _repository(home / "work")
    (repository / "src").mkdir()
    (home / "short").symlink_to(repository / "src")

    assert _find(home / "short", home) == repository
    assert _above(home / "short", home) == []


def test_a_checkout_is_found_from_any_depth_and_before_a_nearer_marker(home: Path) -> None:
    repository = _repository(home / "work")
    package = repository / "packages" / "web"
    package.mkdir(parents=True)
    (package / "package.json").touch()

    assert _find(package, home) == repository


@pytest.mark.parametrize("marker", MARKERS)
def test_the_nearest_marker_is_the_top_of_a_project(home: Path, marker: str) -> None:
    inner = home / "outer" / "inner" / "deep"
    inner.mkdir(parents=True)
    (home / "outer" / marker).touch()
    (home / "outer" / "inner" / marker).touch()

    assert _find(inner, home) == home / "outer" / "inner"
    assert _above(inner, home) == [home / "outer"]


def test_a_linked_worktree_belongs_to_the_main_checkout(home: Path) -> None:
    main = _repository(home / "main")
    _git(main, "worktree", "add", "-q", str(home / "elsewhere" / "tree"))
    (home / "elsewhere" / "tree" / "src").mkdir()

    place = find_place(str(home / "elsewhere" / "tree" / "src"), [str(home)])

    assert place.path == find_place(str(main), [str(home)]).path == str(main)
    assert str(home / "elsewhere") in place.above


def test_a_worktree_inside_the_main_checkout_belongs_to_it_too(home: Path) -> None:
    main = _repository(home / "main")
    _git(main, "worktree", "add", "-q", str(main / "trees" / "one"))

    place = find_place(str(main / "trees" / "one"), [str(home)])

    assert place == Place(str(main), (), (str(main / "trees" / "one"),))


def test_exactly_the_folder_that_was_named_is_a_place_inside_its_work(home: Path) -> None:
    main = _repository(home / "src" / "main")
    inner = main / "services" / "api"
    inner.mkdir(parents=True)
    (inner / "a.py").touch()
    (home / "short").symlink_to(inner)
    services, src = str(main / "services"), str(home / "src")

    places = [
        find_place(str(path), [str(home)], is_exact=True) for path in (inner, inner / "a.py", home / "short")
    ]

    assert places == [Place(str(inner), (services, str(main), src))] * 3
    assert find_place(str(inner), [str(home)]) == Place(str(main), (src,), (str(inner), services))
    assert find_place(str(main), [str(home)], is_exact=True) == Place(str(main), (src,))


def test_exactly_a_worktree_is_a_place_inside_its_main_checkout(home: Path) -> None:
    main = _repository(home / "main")
    tree = home / "trees" / "one"
    _git(main, "worktree", "add", "-q", str(tree))
    inner = tree / "src"
    inner.mkdir()

    deep = find_place(str(inner), [str(home)], is_exact=True)
    exact = find_place(str(tree), [str(home)], is_exact=True)

    assert deep == Place(str(inner), (str(tree), str(main), str(home / "trees")))
    assert exact == Place(str(tree), (str(main), str(home / "trees")))
    assert find_place(str(inner), [str(home)]).inside == (str(inner), str(tree))


def test_a_folder_whose_name_cannot_be_shown_is_no_place_and_what_it_is_in_is_one(home: Path) -> None:
    main = _repository(home / "main")
    odd = main / "a\nb"
    odd.mkdir()

    assert find_place(str(odd), [str(home)]) == Place(str(main))
    with pytest.raises(NotAPlace, match="cannot be shown"):
        find_place(str(odd), [str(home)], is_exact=True)


def test_worktrees_of_a_bare_repository_share_it(home: Path) -> None:
    main = _repository(home / "main")
    _git(home, "clone", "-q", "--bare", str(main), str(home / "bare.git"))
    for name in ("one", "two"):
        _git(home / "bare.git", "worktree", "add", "-q", "-b", name, str(home / name))

    assert _find(home / "one", home) == _find(home / "two", home) == home / "bare.git"


def test_worktrees_beside_a_hidden_bare_repository_share_the_folder_that_points_to_it(home: Path) -> None:
    main = _repository(home / "main")
    (home / "work").mkdir()
    _git(home, "clone", "-q", "--bare", str(main), str(home / "work" / ".bare"))
    (home / "work" / ".git").write_text("gitdir: ./.bare\n")
    _git(home / "work" / ".bare", "worktree", "add", "-q", "-b", "one", str(home / "work" / "one"))

    assert _find(home / "work" / "one", home) == home / "work"


def test_a_submodule_keeps_its_own_place(home: Path) -> None:
    library = _repository(home / "library")
    main = _repository(home / "main")
    _git(main, "submodule", "add", "-q", str(library), "vendor/library")

    assert _find(main / "vendor" / "library", home) == main / "vendor" / "library"
    assert _above(main / "vendor" / "library", home) == [main / "vendor", main]


@pytest.mark.parametrize("named", ["", "..", "../.."])
def test_a_home_folder_and_what_is_above_it_is_no_place(home: Path, named: str) -> None:
    with pytest.raises(NotAPlace, match="name a folder inside it"):
        _find(home / named, home)


def test_the_root_is_no_place_even_without_a_home() -> None:
    with pytest.raises(NotAPlace):
        find_place("/", [])


def test_a_repository_at_home_is_not_the_place_of_what_lies_in_it(home: Path) -> None:
    _git(home, "init", "-q")
    (home / "work" / "deep").mkdir(parents=True)

    assert _find(home / "work" / "deep", home) == home / "work" / "deep"


def test_a_worktree_whose_main_checkout_is_home_is_its_own_place(home: Path) -> None:
    _git(home, "init", "-q")
    _git(home, "commit", "-q", "--allow-empty", "-m", "first")
    _git(home, "worktree", "add", "-q", str(home / "tree"))

    assert _find(home / "tree", home) == home / "tree"


def test_a_pipe_named_git_is_passed_over_and_nothing_waits(home: Path) -> None:
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
def test_a_git_file_that_says_nothing_useful_is_passed_over(home: Path, content: bytes) -> None:
    (home / "work" / "deep").mkdir(parents=True)
    (home / "work" / ".git").write_bytes(content)

    assert _find(home / "work" / "deep", home) == home / "work" / "deep"


def test_an_empty_folder_named_git_is_no_checkout(home: Path) -> None:
    (home / "work" / ".git").mkdir(parents=True)
    (home / "work" / "deep").mkdir()

    assert _find(home / "work" / "deep", home) == home / "work" / "deep"


def test_a_worktree_whose_repository_has_gone_is_its_own_place(home: Path) -> None:
    main = _repository(home / "main")
    _git(main, "worktree", "add", "-q", str(home / "tree"))
    (main / ".git" / "worktrees" / "tree" / "commondir").write_text("../../../gone\n")

    assert _find(home / "tree", home) == home / "tree"


def test_a_folder_in_the_place_of_a_file_of_git_is_not_read(home: Path) -> None:
    repository = _repository(home / "main")
    (repository / ".git" / "commondir").mkdir()

    assert _find(repository, home) == repository


@pytest.mark.parametrize("written", ["", "work", "./work", "~/work", "/with\0nothing"])
def test_a_path_that_is_not_whole_is_refused(written: str) -> None:
    with pytest.raises(NotAPlace, match="the whole path"):
        find_place(written, [])


def test_what_is_not_there_is_refused(home: Path) -> None:
    with pytest.raises(NotAPlace, match="No such file"):
        _find(home / "nowhere", home)


def test_a_circle_of_symlinks_is_refused(home: Path) -> None:
    (home / "one").symlink_to(home / "two")
    (home / "two").symlink_to(home / "one")

    with pytest.raises(NotAPlace):
        _find(home / "one", home)


@pytest.mark.parametrize("name", [b"bad\xff", b"two\nlines", b"esc\x1b"])
def test_a_folder_whose_name_cannot_be_shown_is_refused_in_words_that_can(home: Path, name: bytes) -> None:
    folder = os.path.join(os.fsencode(home), name)
    os.mkdir(folder)

    with pytest.raises(NotAPlace, match="cannot be shown") as caught:
        find_place(os.fsdecode(folder), [str(home)])

    assert str(caught.value).encode("ascii")


@given(st.text(max_size=80))
def test_whatever_is_written_is_a_place_or_refused(written: str) -> None:
    try:
        found = find_place(f"/{written}", ["/nobody"])
    except NotAPlace:
        return

    assert os.path.isdir(found.path)
    assert found.path == os.path.realpath(found.path)


def test_home_folders_are_the_one_of_the_environment_and_the_one_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    found = home_folders()

    assert found[0] == str(tmp_path)
    assert len(found) == len(set(found))


def test_somebody_whom_the_system_does_not_know_has_the_home_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)

    assert home_folders() == (str(tmp_path),)


async def test_places_are_found_without_holding_up_the_loop(home: Path) -> None:
    (home / "work").mkdir()

    found = await Places([str(home)]).find(str(home / "work"))

    assert found == Place(str(home / "work"))


async def test_the_home_of_whoever_asks_is_no_place_either_and_what_is_above_it_is(home: Path) -> None:
    own = home / "work" / "own"
    (own / "project").mkdir(parents=True)
    (own / "package.json").touch()
    (home / "link").symlink_to(own)
    places = Places([str(home)])

    inside = await places.find(str(own / "project"), home=str(home / "link"))
    above = await places.find(str(home / "work"), home=str(own))

    assert inside == Place(str(own / "project"))
    assert above == Place(str(home / "work"))
    assert await places.find(str(own), home="own") == Place(str(own), (str(home / "work"),))
    with pytest.raises(NotAPlace, match="a home folder"):
        await places.find(str(own), home=str(home / "link"))


async def test_a_refusal_comes_out_of_the_thread_as_it_is(home: Path) -> None:
    with pytest.raises(NotAPlace):
        await Places([str(home)]).find(str(home))


async def test_a_file_system_that_hangs_costs_its_turn_and_stops_nobody_else(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "work").mkdir()
    go_on = threading.Event()
    real = places.find_place

    def hangs(path: str, homes: tuple[str, ...], *, is_exact: bool, home: str) -> Place:
        if path.endswith("stuck"):
            go_on.wait(LIMIT_S)
        return real(path, homes, is_exact=is_exact, home=home)

    monkeypatch.setattr(places, "find_place", hangs)
    found = Places([str(home)], limit_s=0.05, threads=2)

    with pytest.raises(TooSlow, match="does not answer"):
        await found.find(str(home / "stuck"))
    assert (await found.find(str(home / "work"))).path == str(home / "work")
    with pytest.raises(TooSlow):
        await found.find(str(home / "stuck"))
    with pytest.raises(TooSlow):
        await found.find(str(home / "work"))
    go_on.set()
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                assert (await found.find(str(home / "work"))).path == str(home / "work")
                break
            except TooSlow:
                continue


async def test_one_who_asks_and_goes_away_gives_its_turn_back(home: Path) -> None:
    (home / "work").mkdir()
    found = Places([str(home)], threads=1)
    asked = asyncio.ensure_future(found.find(str(home / "work")))
    await asyncio.sleep(0)

    asked.cancel()

    assert (await found.find(str(home / "work"))).path == str(home / "work")


def test_the_folders_around_a_place_begin_with_the_deepest() -> None:
    place = Place(path="/a/b", above=("/a",), inside=("/a/b/c/d", "/a/b/c"))

    assert place.around == ("/a/b/c/d", "/a/b/c", "/a/b", "/a")
