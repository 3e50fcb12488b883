"""Stamps the bytes that two guests write at their switches, by the one clock of this machine.

stamps.py SOCKET SOCKET: listens on both until both guests are gone. A byte is the number of a slice;
the same slice of both guests makes a pair. Prints how far the two of a pair are apart.
"""

import os
import selectors
import socket
import sys
import time

# The two of a slice are nearer than this, and the next slice of that number is further away, ns.
NEAR_NS = 5_000_000_000

stamps = [[], []]
selector = selectors.DefaultSelector()
for guest, path in enumerate(sys.argv[1:]):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    selector.register(listener, selectors.EVENT_READ, ("listener", guest))
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
except PermissionError:
    print("stamps.py has no priority, so it may be late", file=sys.stderr)

gone = 0
while gone < 2:
    for key, _ in selector.select():
        now_ns = time.monotonic_ns()
        kind, guest = key.data
        if kind == "listener":
            selector.register(key.fileobj.accept()[0], selectors.EVENT_READ, ("guest", guest))
            selector.unregister(key.fileobj)
        elif data := key.fileobj.recv(4096):
            stamps[guest] += [(number, now_ns) for number in data]
        else:
            selector.unregister(key.fileobj)
            gone += 1

apart = []
for number, at_ns in stamps[0]:
    others = [abs(at_ns - other_ns) for other, other_ns in stamps[1] if other == number]
    if others and min(others) < NEAR_NS:
        apart.append(min(others) / 1e3)
print(f"switches: {len(stamps[0])} of node1, {len(stamps[1])} of node2, {len(apart)} of both")
if len(apart) < 20:
    sys.exit("FAILED: the guests have too few switches in common")
apart.sort()
print(f"the two are apart by p50 {apart[len(apart) // 2]:.0f} µs, p99 {apart[len(apart) * 99 // 100]:.0f} µs")
