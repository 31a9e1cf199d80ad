"""Take the keyboard of an agent, do nothing with it and print `mine`: `owner.py SOCKET`."""

import json
import socket
import sys

wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[1])
wire.sendall(b'{"type": "attach", "cols": 80, "rows": 24}\n')
taken = json.dumps({"type": "passthrough", "on": True}).encode()
wire.sendall(b"\1" + len(taken).to_bytes(4, "big") + taken)
received = b""
while b'"own"' not in received:
    received += wire.recv(65536)
sys.stdout.write("mine\n")
sys.stdout.flush()
while wire.recv(65536):
    pass
