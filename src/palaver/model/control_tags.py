"""Tags by which harnesses mark their own text in a prompt; texts for agents contain them escaped. Pure."""

from typing import Final

CONTROL_TAGS: Final = {
    "claude": (
        *(
            "system-reminder",
            "system-note",
            "system",
            "task-notification",
            "tool_use_error",
            "function_results",
        ),
        *(
            "function_calls",
            "antml:function_calls",
            "antml:invoke",
            "invoke",
            "command-name",
            "command-message",
        ),
        *(
            "command-args",
            "local-command-stdout",
            "local-command-stderr",
            "local-command-caveat",
            "bash-input",
        ),
        *("bash-stdout", "bash-stderr", "user-prompt-submit-hook", "session-start-hook", "user-memory-input"),
        *("persisted-output", "new-diagnostics", "mcp-server-note", "mcp-resource", "non-user-message"),
        *(
            "user-message",
            "agent-message",
            "cross-session-message",
            "teammate-message",
            "channel",
            "tool-call",
        ),
        *(
            "tool-result",
            "cc-memory",
            "claude_md",
            "user_claude_md",
            "autonomous-loop",
            "artifact-room-event",
        ),
        *("webhook-payload", "previous-conversation", "pasted_content", "sandbox_violations", "total_tokens"),
    ),
    "codex": (
        *(
            "environment_context",
            "user_instructions",
            "instructions",
            "permissions instructions",
            "turn_aborted",
        ),
        *(
            "collaboration_mode",
            "skills_instructions",
            "apps_instructions",
            "plugins_instructions",
            "model_switch",
        ),
        *("environments_instructions", "managed_developer_instructions", "model_instructions", "user_action"),
        *("user_shell_command", "subagent_notification", "agent_message_board_notification", "proposed_plan"),
        *("codex_internal_context", "codex_delegation", "context_window", "context_window_reminder"),
        *(
            "context_window_guidance",
            "current_time_reminder",
            "persistent_mode",
            "permission_profile",
            "user_query",
        ),
        *(
            "multi_agent_mode",
            "multi_agent_role",
            "startup_context",
            "personality_spec",
            "token_budget",
            "skill",
        ),
        *(
            "user_verification_notice",
            "content_filter_guidance",
            "untrusted_objective",
            "realtime_conversation",
        ),
    ),
    "gemini": (
        *("hook_context", "session_context", "state_snapshot", "loaded_context", "extension_context"),
        *("project_context", "global_context", "untrusted_context", "user_project_memory", "activated_skill"),
        *(
            "available_skills",
            "available_subagents",
            "system_note",
            "background_output",
            "tool_output_masked",
        ),
        *("original_user_request", "user_input"),
    ),
    "opencode": (
        *("system-reminder", "system-update", "conversation-checkpoint", "recent-context", "prior-summary"),
        *("mcp_instructions", "shell_metadata", "skill_content", "available_references", "available_skills"),
        *("github_action_context", "env"),
    ),
}
"""Per harness, the names of its tags, as the tested versions write them."""
