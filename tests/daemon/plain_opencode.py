"""A fake OpenCode with its plugin, as its companion sees both: pipes, sessions in memory, a fake model."""

import json
import shlex
import subprocess
import threading
from contextlib import suppress
from typing import Any

from tests.daemon.stage import Home
from tests.limits import LIMIT_S

from palaver.client.start import find_python
from palaver.holder.opencode import MODULE


class PlainOpenCode:
    """A process with OpenCode's mark, and the real companion of it."""

    def __init__(self, home: Home, mark: str = "OPENCODE=1") -> None:
        words = f"{mark} {shlex.quote(find_python())} -I -m {MODULE} --home {home.path} /; exit $?"
        self.process = subprocess.Popen(
            ["bash", "--norc", "-c", words],
            env=home.environment,
            cwd=home.path.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.told: dict[str, str] = {}
        """The context that each session's model receives with every request."""
        self.texts: dict[str, list[dict[str, Any]]] = {}
        self.permissions: list[dict[str, object]] = []
        self.replies: list[tuple[str, object]] = []
        self.sessions: list[dict[str, object]] = []
        self._count = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # Events of the harness

    def begin(self, session: str, parent: str = "", kind: str = "build") -> None:
        """Start a session with a message from its user."""
        info: dict[str, object] = {"id": session, "agent": kind}
        if parent:
            info["parentID"] = parent
        self.sessions.append(info)
        self.texts.setdefault(session, [])
        self.say("session.created", sessionID=session, info=info)
        self.write({"begun": session})
        message = {"id": self._next(), "role": "user", "sessionID": session, "agent": kind}
        self.say("message.updated", sessionID=session, info=message)

    def status(self, session: str, kind: str) -> None:
        self.say("session.status", sessionID=session, status={"type": kind})

    def answer(self, session: str) -> None:
        """Let the model respond to all messages of a session."""
        last, name = self.texts[session][-1]["messageID"], self._next()
        info = {"id": name, "role": "assistant", "sessionID": session, "parentID": last}
        self.say("message.updated", sessionID=session, info=info)
        part = {"type": "step-start", "messageID": name, "id": f"prt_{name}"}
        self.say("message.part.updated", sessionID=session, part=part)

    def ask_leave(self, session: str, request: str = "per_1", command: str = "rm x") -> None:
        """Ask the person for permission."""
        asked: dict[str, object] = {"id": request, "sessionID": session, "permission": "bash"}
        asked["metadata"] = {"command": command}
        self.permissions.append(asked)
        self.say("permission.asked", **asked)

    def say(self, kind: str, **about: object) -> None:
        self.write({"event": {"type": kind, "properties": about}})

    def write(self, value: object) -> None:
        assert self.process.stdin is not None
        with self._lock, suppress(ValueError, BrokenPipeError):  # it is ending
            self.process.stdin.write(json.dumps(value).encode() + b"\n")
            self.process.stdin.flush()

    def close(self) -> int:
        """End it and return the exit status of its companion."""
        assert self.process.stdin is not None
        with self._lock:
            self.process.stdin.close()
        status = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    # Requests of the companion

    def _next(self) -> str:
        self._count += 1
        return f"msg_{self._count:04}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "ask" in message:
                status, body = self._do(message["method"], message["path"], message["body"])
                self.write({"answer": message["ask"], "status": status, "body": body})
            with self._changed:
                if "session" in message:
                    self.told[message["session"]] = message["told"]
                self._changed.notify_all()

    def _do(self, method: str, path: str, given: Any) -> tuple[int, object]:
        words = path.split("/")
        if path.endswith("/prompt_async"):
            message = self._next()
            info = {"id": message, "role": "user", "sessionID": words[2]}
            self.say("message.updated", sessionID=words[2], info=info)
            for part in given["parts"]:
                self.texts[words[2]].append({**part, "messageID": message})
                self.say("message.part.updated", sessionID=words[2], part=self.texts[words[2]][-1])
            return 204, None
        if path.endswith("/reply"):
            self.replies.append((words[2], given))
            (asked,) = [one for one in self.permissions if one["id"] == words[2]]
            self.permissions.remove(asked)
            self.say("permission.replied", sessionID=asked["sessionID"], requestID=words[2])
            return 200, True
        known: dict[str, object] = {"/session": self.sessions, "/permission": self.permissions}
        return 200, known.get(path, {} if path == "/session/status" else [])

    def until(self, is_so: Any) -> None:
        """Wait until the output of the companion meets a condition."""
        with self._changed:
            assert self._changed.wait_for(is_so, LIMIT_S), self.told

    def name_of(self, session: str) -> str:
        """Wait until a session knows its agent's name, and return the name."""
        self.until(lambda: self.told.get(session))
        return self.told[session].removeprefix("You are ").split(" ")[0]
