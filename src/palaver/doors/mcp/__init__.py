"""MCP: the tools for models, over the pump of `pal mcp` and over HTTP."""
