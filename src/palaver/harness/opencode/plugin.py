"""The plugin that `pal install opencode` adds to OpenCode 1.18. Pure: JavaScript source.

It runs inside OpenCode and knows nothing about the bus. It keeps one companion process per folder, passes on
events of its sessions, and sends the companion's requests to OpenCode. If the companion fails, OpenCode goes
on: no hook waits longer than half a second, and only once per session.
"""

import json
from collections.abc import Sequence
from typing import Final

FILE: Final = "palaver.js"

_SOURCE: Final = r"""// Written by Palaver ('pal install opencode'); 'pal uninstall opencode' removes it.
import { spawn } from "node:child_process"

const COMMAND = __COMMAND__
const EVENTS = new Set([
  "session.created", "session.updated", "session.deleted", "session.status", "session.idle", "session.error",
  "session.compacted", "permission.asked", "permission.replied", "question.asked", "question.replied",
  "question.rejected", "message.updated", "message.part.updated", "tui.session.select",
])
// Pauses before each new start of the companion; the last one repeats.
const RESTART_MS = [1000, 5000, 30000, 120000]
const LIMIT_LINE = 8 * 1024 * 1024
// The first prompt of a session waits this long for its instructions: a slow bus cannot delay it more.
const INSTRUCTIONS_MS = 500

// Remove streamed text and tool results: the companion does not use them, and they can be long.
const shortened = (event) => {
  const part = event.properties?.part
  if (event.type !== "message.part.updated" || !part) return event
  const short = { ...part }
  if (part.type === "text" || part.type === "reasoning") short.text = ""
  if (part.state) short.state = { status: part.state.status, input: part.state.input }
  return { type: event.type, properties: { ...event.properties, part: short } }
}

export const Palaver = async ({ client, directory }) => {
  let child, starts = 0, isClosed = false
  // Both by session: the instructions received, and the prompts that wait for them.
  const instructions = new Map(), waiting = new Map()

  const write = (value) => {
    const pipe = child?.stdin
    if (!pipe || pipe.destroyed || pipe.writableLength > LIMIT_LINE) return
    try { pipe.write(JSON.stringify(value) + "\n") } catch {}
  }
  const forward = async ({ ask, method, path, body }) => {
    try {
      const options = { method, url: path }
      if (body !== undefined && body !== null) {
        options.body = body
        options.headers = { "content-type": "application/json" }
      }
      const result = await client._client.request(options)
      write({ answer: ask, status: result.response?.status ?? 0, body: result.data ?? null })
    } catch { write({ answer: ask, status: 0, body: null }) }
  }
  const receive = (line) => {
    let message
    try { message = JSON.parse(line) } catch { return }
    if (message.ask) void forward(message)
    else if (message.session) {
      instructions.set(message.session, message.told)
      waiting.get(message.session)?.()
      waiting.delete(message.session)
    }
  }
  const start = () => {
    if (isClosed) return
    const started = Date.now()
    try {
      child = spawn(COMMAND[0], [...COMMAND.slice(1), directory], { stdio: ["pipe", "pipe", "ignore"] })
    } catch { return }
    let rest = ""
    child.stdin.on("error", () => {})
    child.stdout.setEncoding("utf8")
    child.stdout.on("data", (data) => {
      const lines = (rest + data).split("\n")
      rest = lines.pop()
      if (rest.length > LIMIT_LINE) rest = ""
      lines.forEach(receive)
    })
    child.on("error", () => {})
    child.on("close", (code) => {
      child = undefined
      instructions.clear()
      if (code === 3) isClosed = true // the bus reaches these sessions through another integration
      if (Date.now() - started > 60000) starts = 0
      const timer = setTimeout(start, RESTART_MS[Math.min(starts++, RESTART_MS.length - 1)])
      timer.unref?.() // a pending restart must not keep OpenCode running
    })
    child.unref?.()
    child.stdin.unref?.()
    child.stdout.unref?.()
    write({ arguments: process.argv.slice(2) })
  }
  start()

  return {
    event: async ({ event }) => { if (EVENTS.has(event.type)) write({ event: shortened(event) }) },
    "chat.message": async (input) => {
      if (!child || instructions.has(input.sessionID)) return
      write({ begun: input.sessionID })
      await new Promise((done) => {
        waiting.set(input.sessionID, done)
        setTimeout(done, INSTRUCTIONS_MS)
      })
      // An empty text means that the wait is over: later prompts of this session do not wait again.
      if (!instructions.has(input.sessionID)) instructions.set(input.sessionID, "")
    },
    "experimental.chat.system.transform": async (input, output) => {
      const text = instructions.get(input.sessionID)
      if (text) output.system.push(text)
    },
    "tool.execute.before": async (input, output) => {
      if (input.tool.startsWith("palaver_") && output.args) output.args.palaver_session = input.sessionID
    },
    "shell.env": async (input, output) => {
      if (input.sessionID) output.env.OPENCODE_SESSION_ID = input.sessionID
      if (process.env.OPENCODE_SERVER_PASSWORD) output.env.OPENCODE_SERVER_PASSWORD = ""
    },
    dispose: async () => { isClosed = true; child?.stdin?.end() },
  }
}
"""


def plugin_source(companion: Sequence[str]) -> str:
    """Return the plugin; `companion` is the command that it runs, with the folder as last argument."""
    return _SOURCE.replace("__COMMAND__", json.dumps(list(companion)))
