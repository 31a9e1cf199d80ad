"""A scripted harness: it has a composer and moods, and records every byte it reads together with its mood.

    moods.py RECORD ORDERS LOOK

`LOOK` is `framed`: a composer between two rules, as in Claude Code; `plain`: an echo, with the mood in OSC
7501; `stubborn`: as `plain`, and Ctrl-C has no effect; `mute`: only an echo. `ORDERS` is a pipe of lines:
`idle`, `working`, `compacting`, `dialog` (until the next order), `trap` (a dialog opens at the next paste),
`random SEED` (moods change at random), `calm` (random changes end: idle), `hook SOCKET REQUEST` (send a hook
event to the agent's holder), `run COMMAND` (in a shell, like a tool call) and `start COMMAND` (the same, but
not waiting for its end). Each line of the record has two fields:

    read:<mood> HEX     input; `changing`: the terminal may not have seen the newest mood yet
    draft HEX           input while a person's draft, made of `~`, was in the composer
    sent HEX            the composer at Enter          mood WORD      a mood that the terminal has seen
"""

import os
import random
import re
import select
import socket
import subprocess
import sys
import time
import tty

ANSWER = b"\x1b]7501;?ok\x1b\\"
PROBE = b"\x1b]7501;?\x1b\\"
INPUT = re.compile(rb"\x1b\]7501;\?ok\x1b\\|\x1b\[20[01]~|[^\x00-\x1f\x7f]+|[\x00-\xff]")
PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"
SAID = {"idle": b"idle", "working": b"working", "compacting": b"working", "dialog": b"blocked"}
RULE = "─" * 78
MOODS = ("idle", "idle", "idle", "working", "working", "dialog", "compacting")
PERSON = b"~\x15\x7f"


class Agent:
    def __init__(self, record: str, orders: str, look: str) -> None:
        self.record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.orders = os.open(orders, os.O_RDWR | os.O_NONBLOCK)
        self.look = look
        self.mood = "starting"
        self.probes = 0
        self.text = b""
        self.last = b""
        self.is_pasting = False
        self.has_trap = False
        self.chance: random.Random | None = None
        self.due_s = 0.0

    def note(self, word: str, value: str) -> None:
        os.write(self.record, f"{word} {value}\n".encode())

    def run(self) -> None:
        tty.setraw(0)
        os.write(1, b"ready\r\n\x1b[?2004h")
        self.note("mood", "starting")
        while True:
            limit_s = max(0.0, self.due_s - time.monotonic()) if self.chance is not None else None
            ready, _, _ = select.select([0, self.orders], [], [], limit_s)
            if 0 in ready:
                self.read()
            if self.orders in ready:
                for order in os.read(self.orders, 4096).decode().splitlines():
                    self.obey(order)
            if self.chance is not None and time.monotonic() >= self.due_s:
                self.change(self.chance.choice(MOODS))

    def obey(self, order: str) -> None:
        word, _, rest = order.partition(" ")
        if word == "random":
            self.chance = random.Random(rest)
            self.change("idle")
        elif word == "trap":
            self.has_trap = True
        elif word == "calm":
            self.chance = None
            self.change("idle")
            self.note("mood", "calm")
        elif word == "hook":
            self.hook(*rest.split(" ", 1))
        elif word == "run":
            self.note("ran", str(subprocess.call(rest, shell=True, stdin=subprocess.DEVNULL)))
        elif word == "start":
            subprocess.Popen(rest, shell=True, stdin=subprocess.DEVNULL)
        else:
            self.change(word)

    def hook(self, path: str, request: str) -> None:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(path)
            wire.sendall(request.encode() + b"\n")
            self.note("hooked", wire.makefile("rb").readline().hex())

    def change(self, mood: str) -> None:
        if self.chance is not None:
            self.due_s = time.monotonic() + self.chance.uniform(0.05, 0.5)
        self.mood = mood
        self.probes += 1
        self.draw()
        # The terminal replies in order: everything that was typed before it saw this mood arrives before the
        # reply.
        os.write(1, PROBE)

    def draw(self) -> None:
        report = b"\x1b]7501;state=%s\x1b\\" % SAID.get(self.mood, b"working") if self.look != "mute" else b""
        os.write(1, report + (self.framed() if self.look == "framed" else self.plain()))

    def plain(self) -> bytes:
        shown = b"\x1b[2J\x1b[H" + self.last + b"\r\n%s\r\n" % self.mood.encode() + self.text
        return shown + b"\r\nProceed? [y/n] " if self.mood == "dialog" else shown

    def framed(self) -> bytes:
        lines = [f"  {self.last.decode(errors='replace')[:70]}", ""]
        if self.mood == "dialog":
            lines += [" Do you want to proceed?", " ❯ 1. Yes", "   2. No", "", " Esc to cancel"]
            return _frame("\r\n".join(lines))
        if self.mood == "compacting":
            lines += ["✻ Compacting conversation…", ""]
        text = self.text.decode(errors="replace")
        rows = [text[at : at + 74] for at in range(0, len(text), 74)] or [""]
        lines += [RULE, f"❯ {rows[0]}", *(f"  {row}" for row in rows[1:])]
        row, column = len(lines), len(rows[-1]) + 3
        lines += [RULE, "  ? for shortcuts" if self.mood == "idle" else "  esc to interrupt"]
        return _frame("\r\n".join(lines) + f"\x1b[{row};{column}H")

    def read(self) -> None:
        for key in INPUT.findall(os.read(0, 65536)):
            if key == ANSWER:
                self.probes -= 1
                if not self.probes:
                    self.note("mood", self.mood)
                continue
            is_known = not self.probes
            self.note(f"read:{self.mood if is_known else 'changing'}", key.hex())
            if b"~" in self.text and not set(key) <= set(PERSON):
                self.note("draft", key.hex())
            if self.mood != "dialog" or not is_known:
                self.press(key)

    def press(self, key: bytes) -> None:
        if key in (PASTE_BEGIN, PASTE_END):
            self.is_pasting = key == PASTE_BEGIN
        elif self.is_pasting or not set(key) & set(b"\r\x15\x7f\x03\x1b"):
            self.text += key
        elif key == b"\x15":
            self.text = self.text.replace(b"~", b"")
        elif key == b"\x7f":
            self.text = self.text[:-1]
        elif key == b"\r":
            self.send()
            return
        elif self.look == "stubborn" and key == b"\x03":
            self.note("ctrl-c", str(time.monotonic()))
            return
        elif self.mood == "working" and key == (b"\x1b" if self.look == "framed" else b"\x03"):
            self.change("idle")
            return
        if self.has_trap and self.text:
            self.has_trap = False
            self.change("dialog")
            return
        self.draw()

    def send(self) -> None:
        self.note("sent", self.text.hex())
        self.last, self.text = b"sent " + self.text[-60:], b""
        if self.chance is not None and self.mood in ("idle", "working"):
            self.change("working")
        else:
            self.draw()


def _frame(text: str) -> bytes:
    return b"\x1b[?2026h\x1b[2J\x1b[H" + text.encode() + b"\x1b[?2026l"


if __name__ == "__main__":
    Agent(*sys.argv[1:]).run()
