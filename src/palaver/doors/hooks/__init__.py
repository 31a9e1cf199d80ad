"""The hook door: what harnesses say of themselves, and what they are told at that moment."""
