"""Handlers of events other than delivery: watches, reminders, stick timers, message files, clean-up."""
