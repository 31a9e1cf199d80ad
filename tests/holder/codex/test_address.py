"""The address of a Codex server, and the last session of a folder."""

import json
import os
from pathlib import Path

from palaver.holder.codex_start import codex_address, last_codex_session


def write(home: Path, name: str, when: int, line: str) -> None:
    path = home / ".codex" / "sessions" / "2026" / "11" / "15" / f"rollout-{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{line}\n")
    os.utime(path, (when, when))


def head(name: str, cwd: str) -> str:
    return json.dumps({"type": "session_meta", "payload": {"id": name, "cwd": cwd}})


def test_every_server_has_its_own_address() -> None:
    first, second = codex_address("/home/a/.palaver"), codex_address("/home/a/.palaver")

    assert first.startswith("/home/a/.palaver/agents/native/codex-")
    assert first != second


def test_deep_home_gets_a_short_address_in_tmp() -> None:
    address = codex_address("/deep" * 30)

    assert len(address) < 100
    assert address.startswith(f"/tmp/palaver-{os.getuid()}/codex-")


def test_last_session_of_a_folder_is_found(tmp_path: Path) -> None:
    write(tmp_path, "a", 10, head("first", "/project"))
    write(tmp_path, "b", 30, head("elsewhere", "/other"))
    write(tmp_path, "c", 20, head("second", "/project"))
    write(tmp_path, "d", 40, "{half")
    write(tmp_path, "e", 50, "[]")

    assert last_codex_session({"HOME": str(tmp_path)}, "/project") == "second"
    assert last_codex_session({"CODEX_HOME": str(tmp_path / ".codex")}, "/other") == "elsewhere"
    assert last_codex_session({"HOME": str(tmp_path)}, "/nowhere") == ""
    assert last_codex_session({}, "/project") == ""
