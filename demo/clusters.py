"""Clusters with scikit-learn, whose k-means computes in many short OpenMP regions.
`clusters.py POINTS TIMES` prints one line of JSON."""

import json
import sys
import time

import numpy
from sklearn.cluster import KMeans

points, times = int(sys.argv[1]), int(sys.argv[2])
random = numpy.random.default_rng(1)
data = random.standard_normal((points, 8))
inertia = 0.0
for _ in range(times):
    inertia = float(KMeans(n_clusters=8, n_init=1, max_iter=20, random_state=1).fit(data).inertia_)
print(json.dumps({"finished_at_ns": time.time_ns(), "inertia": inertia}))
