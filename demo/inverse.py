"""Inverses of matrices with numpy, whose OpenBLAS computes them in many short OpenMP regions.
`inverse.py SIZE TIMES` prints one line of JSON."""

import json
import sys
import time

import numpy

size, times = int(sys.argv[1]), int(sys.argv[2])
random = numpy.random.default_rng(1)
matrix = random.standard_normal((size, size)) + size * numpy.eye(size)
error = 0.0
for _ in range(times):
    inverse = numpy.linalg.inv(matrix)
    error = max(error, float(abs(matrix[0] @ inverse[:, 0] - 1)))
print(json.dumps({"finished_at_ns": time.time_ns(), "error": error}))
sys.exit(1 if error > 1e-6 else 0)
