"""Trains boosted trees with LightGBM, which looks for each split in short OpenMP regions.
`trees.py ROWS TIMES` grows TIMES trees of 31 leaves, and prints one line of JSON."""

import json
import sys
import time

import lightgbm
import numpy

rows, times = int(sys.argv[1]), int(sys.argv[2])
random = numpy.random.default_rng(1)
features = random.standard_normal((rows, 20))
target = numpy.sin(features[:, 0]) + features[:, 1] * features[:, 2]
data = lightgbm.Dataset(features, target)
model = lightgbm.train({"objective": "regression", "verbosity": -1}, data, num_boost_round=times)
error = float(numpy.square(model.predict(features[:1000]) - target[:1000]).mean())
print(json.dumps({"finished_at_ns": time.time_ns(), "error": error}))
