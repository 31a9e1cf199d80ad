"""Path subscriptions and sessions in the state."""

from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.paths import PathSubscription
from palaver.state.fold import apply
from palaver.state.paths import (
    count_path_subscriptions,
    is_subscribed,
    read_agent_session,
    read_agent_sessions,
    read_all_path_subscriptions,
    read_cleared,
    read_path_subscriptions,
    session_of_harness,
    session_used,
)
