"""Decisions: from state, request and facts to an event or a refusal. Pure."""
