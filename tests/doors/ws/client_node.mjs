// A client of Node's `ws`, steered by lines of JSON: commands on standard input, events on standard output.
//
// node client_node.mjs FOLDER   (FOLDER has node_modules/ws)

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { WebSocket } = createRequire(`${process.argv[2]}/`)("ws");
const sockets = new Map();

function tell(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

function open({ id, url, headers }) {
  const socket = new WebSocket(url, { headers });
  sockets.set(id, socket);
  socket.on("open", () => tell({ id, event: "open" }));
  socket.on("message", (data, isBinary) => tell({ id, event: isBinary ? "binary" : "text", text: data.toString() }));
  socket.on("unexpected-response", (request, response) => {
    tell({ id, event: "refused", status: response.statusCode });
    request.destroy();
  });
  socket.on("error", (error) => tell({ id, event: "error", text: error.message }));
  socket.on("close", (code, reason) => tell({ id, event: "close", code, reason: reason.toString() }));
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const socket = sockets.get(command.id);
  if (command.do === "open") open(command);
  else if (command.do === "text") socket.send(command.text);
  else if (command.do === "binary") socket.send(Buffer.from(command.text));
  else if (command.do === "close") socket.close();
}
process.exit(0);
