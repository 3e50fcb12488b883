"""Runs mpi4py's own tests that exchange messages, from its source in DIRECTORY.
`mpi4py_tests.py DIRECTORY TIMES` runs them on each rank, and prints one line of JSON on the first.
Tests that fail are named on standard error."""

import json
import os
import sys
import time
import unittest

from mpi4py import MPI

tests, times = os.path.join(sys.argv[1], "test"), int(sys.argv[2])
sys.path.insert(0, tests)
# Between two ranks and among all of them, of buffers and of objects.
names = sorted(file[:-3] for file in os.listdir(tests) if file.startswith(("test_p2p_", "test_cco_")))
ran, wrong = 0, []
with open(os.devnull, "w", encoding="utf-8") as nowhere:
    for _ in range(times):
        suite = unittest.defaultTestLoader.loadTestsFromNames(names)
        result = unittest.TextTestRunner(stream=nowhere).run(suite)
        ran += result.testsRun
        wrong += [str(test) for test, _ in result.errors + result.failures]
finished_at_ns = MPI.COMM_WORLD.reduce(time.time_ns(), op=MPI.MAX)
wrong = MPI.COMM_WORLD.reduce(wrong)
if MPI.COMM_WORLD.rank == 0:
    if wrong or not ran:
        sys.exit(f"of {ran} tests failed: {', '.join(wrong)}")
    print(json.dumps({"finished_at_ns": finished_at_ns, "tests": ran}))
