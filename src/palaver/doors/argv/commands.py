"""Which function does which command. A test compares this with the table of commands."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from palaver.doors.argv import (
    commands_agents,
    commands_archive,
    commands_bundle,
    commands_bus,
    commands_config,
    commands_events,
    commands_mail,
    commands_recv,
    commands_send,
    commands_subs,
    commands_threads,
)
from palaver.doors.argv.call import Call
from palaver.links.doorstep import Doorstep

Handler = Callable[[Call, Doorstep], Awaitable[int]]

HANDLERS: Final[Mapping[tuple[str, ...], Handler]] = {
    ("up",): commands_bus.up,
    ("down",): commands_bus.down,
    ("status",): commands_bus.status,
    ("doctor",): commands_bus.doctor,
    ("config", "list"): commands_config.list_settings,
    ("config", "get"): commands_config.get_setting,
    ("config", "set"): commands_config.set_setting,
    ("config", "edit"): commands_config.edit_settings,
    ("completion",): commands_bus.completion,
    ("__complete",): commands_bus.complete_words,
    ("join",): commands_agents.join,
    ("leave",): commands_agents.leave,
    ("whoami",): commands_agents.whoami,
    ("list",): commands_agents.list_agents,
    ("status", "set"): commands_agents.set_status,
    ("send",): commands_send.send,
    ("recv",): commands_recv.recv,
    ("inbox",): commands_mail.inbox,
    ("show",): commands_mail.show,
    ("receipts",): commands_mail.receipts,
    ("ack",): commands_mail.ack,
    ("release",): commands_mail.release,
    ("redeliver",): commands_mail.redeliver,
    ("thread", "list"): commands_threads.list_threads,
    ("thread", "show"): commands_threads.show_thread,
    ("bundle", "create"): commands_bundle.create,
    ("bundle", "show"): commands_bundle.show,
    ("bundle", "list"): commands_bundle.list_bundles,
    ("bundle", "cat"): commands_bundle.cat,
    ("events",): commands_events.events,
    ("events", "sub"): commands_subs.subscribe,
    ("events", "subs"): commands_subs.subscriptions,
    ("events", "unsub"): commands_subs.unsubscribe,
    ("archive",): commands_archive.archive,
    ("export",): commands_archive.export,
}
