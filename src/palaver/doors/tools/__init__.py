"""The tools that models and programs call: their list, and how a call runs. Knows no protocol."""
