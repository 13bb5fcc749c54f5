"""A whole trainer in ten lines: logistic regression over ids, numpy and the client.

    paddock launch --server-num 2 --worker-num 2 examples/ps/numpy_ten_lines.py

Learns which ids are large modulo 7 from the sums of eight; the error falls from 0.5 to about 0.1.
"""

import numpy as np

from paddock import ps

with ps.Client() as client:
    client.create(ps.SparseSpec("weights", 1, ps.OptimizerSpec("adagrad", 0.5)))
    for number in range(200):
        ids = np.random.default_rng([client.place.trainer, number]).integers(0, 1000, (512, 8))
        guess = 1 / (1 + np.exp(-client.pull("weights", ids).sum((1, 2))))
        error = guess - ((ids % 7).sum(1) > 24)
        client.push("weights", ids, np.repeat(error / 512, 8))
        client.step()
    print(f"trainer {client.place.trainer}: mean error {np.abs(error).mean():.3f}")
