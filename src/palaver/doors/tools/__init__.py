"""The tools that models and programs call: what there is, and how a call is done. Knows no protocol."""
