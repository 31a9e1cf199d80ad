"""MCP: the tools by which a model takes part, over a pump of lines and over HTTP."""
