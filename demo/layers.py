"""Trains with PyTorch: eight layers of 512 units on batches of 64. Their products are short OpenMP
regions.
`layers.py UNITS TIMES` prints one line of JSON, also where it is asked to end (SIGTERM)."""

import json
import os
import signal
import sys
import time

import torch

units, times = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(1)
layers = [torch.nn.Linear(units, units) for _ in range(8)]
model = torch.nn.Sequential(*[part for layer in layers for part in (layer, torch.nn.ReLU())])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(64, units)
loss, done, began_at_ns = 0.0, 0, time.time_ns()


def say():
    work = {"began_at_ns": began_at_ns, "done": done}
    print(json.dumps({"finished_at_ns": time.time_ns(), "loss": loss, "work": work}), flush=True)


def stop(*_):
    say()
    os._exit(0)


signal.signal(signal.SIGTERM, stop)
while done < times:
    optimizer.zero_grad()
    error = (model(batch) - batch).square().mean()
    error.backward()
    optimizer.step()
    loss = float(error)
    done += 1
say()
