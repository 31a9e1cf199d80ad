"""Handlers of events other than delivery.

They are for subscriptions and watches, reminders, stick timers, automatic turns, message files and clean-up.
"""
