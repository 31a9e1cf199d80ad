"""The files of a path broker, as it writes them: for tests of `pal import messages`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SourceLine = dict[str, Any]

T0 = 1_708_900_000_000
"""A time in 2024, in Unix milliseconds."""


def source_line(number: int, path: str, **fields: object) -> SourceLine:
    """Return one message as the path broker stores it."""
    return {
        "id": f"0b7e1c9a-4f7d-4c1e-9a35-{number:012d}",
        "from": "writer",
        "path": path,
        "command": "analyze",
        "payload": {"number": number},
        "status": "pending",
        "timestamp": T0 + number,
        "source": "internal",
        "externalId": None,
        **fields,
    }


def write_lines(path: Path, lines: Sequence[SourceLine | str]) -> None:
    """Write a file of messages; a text is a line as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    path.write_text("".join(f"{text}\n" for text in texts))


def write_agent(
    root: Path, folder_name: str, sessions: Mapping[str, SourceLine] | None = None, **fields: object
) -> None:
    """Write the folder of an agent."""
    folder = root / "agents" / folder_name
    (folder / "sessions").mkdir(parents=True)
    (folder / "jvAgent.json").write_text(json.dumps(fields))
    for id_, content in (sessions or {}).items():
        session = {"id": id_, "isDefault": id_ == "main", "subscriptions": [], **content}
        (folder / "sessions" / f"{id_}.json").write_text(json.dumps(session))


def subscribed(*patterns: str) -> list[SourceLine]:
    """Return the subscriptions of an agent or session, one millisecond after each other."""
    return [{"pattern": pattern, "addedAt": T0 + number} for number, pattern in enumerate(patterns)]


def write_source(root: Path) -> Path:
    """Write a small project: three agents with files, one with messages alone, and two bad lines."""
    write_agent(
        root,
        "researcher",
        {
            "slack-monitor": {
                "title": "Slack channel monitor",
                "subscriptions": subscribed("slack/team/#general"),
                "createdAt": T0 + 5,
                "lastUsedAt": T0 + 900,
                "autoRun": {"enabled": True, "triageModel": "haiku", "debounceMs": 3000},
            }
        },
        name="Researcher",
        description="Reads papers",
        subscriptions=subscribed("email/**", "webhook/github/*", "agent/Writer Bot"),
        autoRun=True,
    )
    write_agent(root, "writer", subscriptions=[])
    write_agent(root, "Writer Bot", subscriptions=subscribed("slack/**"))
    slack = source_line(
        3, "slack/team/#general", **{"from": "slack-bridge"}, source="slack", externalId="1708.5"
    )
    session_id = {"agentId": "researcher", "sessionId": "slack-monitor"}
    write_lines(
        root / ".messages" / "agent--researcher.jsonl",
        [
            source_line(1, "agent/researcher", status="delivered", handled=False),
            "{ this is not JSON",
            source_line(2, "agent/researcher", payload=[1, None, "ü"], handled=False),
            {**slack, "handled": True, "handledBy": [session_id]},
            source_line(4, "agent/**", command="announce", handled=False, **{"from": "Writer Bot"}),
        ],
    )
    write_lines(
        root / ".messages" / "session--researcher--slack-monitor.jsonl", [{**slack, "status": "delivered"}]
    )
    write_lines(
        root / ".messages" / "agent--writer.jsonl",
        [source_line(4, "agent/**", command="announce", handled=False, **{"from": "Writer Bot"})],
    )
    write_lines(
        root / ".messages" / "agent--Writer Bot.jsonl",
        [{**slack, "handled": False}, source_line(6, "agent/Writer Bot", handled=False)],
    )
    write_lines(root / ".messages" / "agent--ghost.jsonl", [source_line(7, "agent/ghost"), "[1, 2]"])
    write_lines(root / ".messages" / "broker-unmatched.jsonl", [source_line(8, "email/a@b/c@d")])
    return root
