"""Gemini CLI 0.61."""
