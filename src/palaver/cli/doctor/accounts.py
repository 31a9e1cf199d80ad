"""Accounts with which a harness uses only the scripted model. Pure: files and variables."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from palaver.cli.mock_model.script import ToolCall

PROGRAMS: Final = ("claude", "codex", "opencode", "gemini")
_TASK: Final = "look into the cellar"
"""The task of a sub-agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account of a user with nothing else."""

    files: Mapping[str, str]
    """Below the home directory."""
    environment: Mapping[str, str]
    call: ToolCall
    """A harmless tool that needs no permission."""
    delegate: ToolCall | None = None
    """A tool that starts a named sub-agent; None if there is no such tool."""
    in_subagent: str = ""
    """A pattern that only the requests of that sub-agent have."""
    arguments: tuple[str, ...] = field(default=())


def account_for(harness: str, url: str, project: str) -> Account:
    """Return the account to test a harness in a folder, with a model at an address."""
    return _ACCOUNTS[harness](url, project)


def _claude(url: str, project: str) -> Account:
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "hasSeenAutoDefaultNotice": True,
        "customApiKeyResponses": {"approved": ["dummy"], "rejected": []},
        "projects": {project: {"hasTrustDialogAccepted": True}},
    }
    return Account(
        files={".claude.json": json.dumps(settings)},
        environment={
            "ANTHROPIC_API_KEY": "dummy",
            "ANTHROPIC_BASE_URL": url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        call=ToolCall(tool="Read", input={"file_path": f"{project}/README"}),
        delegate=ToolCall(
            tool="Agent",
            input={"description": "look", "prompt": _TASK, "subagent_type": "general-purpose"},
        ),
        in_subagent=r"You are \w+_general_purpose_1 on Palaver",
        # By default it asks a server whether a sub-agent is harmless, and the scripted model cannot reply to
        # that.
        arguments=("--permission-mode", "acceptEdits", "--allowedTools=Agent"),
    )


def _codex(url: str, project: str) -> Account:
    lines = [
        'model = "mock-model"',
        'model_provider = "mock"',
        "check_for_update_on_startup = false",
        'approval_policy = "never"',
        'sandbox_mode = "danger-full-access"',
        "[model_providers.mock]",
        'name = "mock"',
        f"base_url = {json.dumps(url + '/v1')}",
        'env_key = "MOCK_API_KEY"',
        'wire_api = "responses"',
        "supports_websockets = false",
        "request_max_retries = 0",
        "stream_max_retries = 0",
        "[analytics]",
        "enabled = false",
        f"[projects.{json.dumps(project)}]",
        'trust_level = "trusted"',
    ]
    return Account(
        files={".codex/config.toml": "\n".join(lines) + "\n"},
        environment={"MOCK_API_KEY": "dummy"},
        call=ToolCall(tool="exec_command", input={"cmd": "true"}),
        delegate=ToolCall(
            tool="spawn_agent",
            input={"message": _TASK, "agent_type": "explorer"},
            namespace="multi_agent_v1",
        ),
        in_subagent=rf'"text":\s*"{_TASK}"',
    )


def _opencode(url: str, project: str) -> Account:
    model = {"name": "Mock", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    settings = {
        "model": "mock/mock-model",
        "small_model": "mock/mock-model",
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "mock": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Mock",
                "options": {"baseURL": f"{url}/v1", "apiKey": "dummy"},
                "models": {"mock-model": model},
            }
        },
    }
    switched_off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    return Account(
        files={".config/opencode/opencode.json": json.dumps(settings)},
        environment={f"OPENCODE_DISABLE_{name}": "1" for name in switched_off},
        call=ToolCall(tool="bash", input={"command": "true", "description": "nothing"}),
        delegate=ToolCall(
            tool="task",
            input={"description": "look", "prompt": _TASK, "subagent_type": "general"},
        ),
        in_subagent=rf'"role": ?"user", ?"content": ?"{_TASK}',
    )


def _gemini(url: str, project: str) -> Account:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "model": {"name": "gemini-2.5-flash"},
    }
    return Account(
        files={".gemini/settings.json": json.dumps(settings)},
        environment={
            "GEMINI_API_KEY": "dummy",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_TELEMETRY_ENABLED": "false",
        },
        call=ToolCall(tool="list_directory", input={"dir_path": project}),
    )


_ACCOUNTS: Final[Mapping[str, Callable[[str, str], Account]]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "gemini": _gemini,
}
