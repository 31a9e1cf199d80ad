"""The commands: one module per noun with rows, functions and rendering; parser, help and completion."""
