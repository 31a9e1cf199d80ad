"""The home directory for Gemini CLI, made of links.

Gemini CLI has no native lane, so there is no lane here.
"""
