"""Lines of `click:0 dense:0.1 dense:2 dense:3 1:17 2:4711 ...`, as PaddleRec's slot files."""

import numpy as np
from paddle.io import IterableDataset


class RecDataset(IterableDataset):
    """label (1,) int64, each slot's id (1,) int64, dense (width,) float32."""

    def __init__(self, file_list, config):
        super().__init__()
        self.file_list = file_list
        self.slots = config.get("hyper_parameters.slots")

    def __iter__(self):
        for path in self.file_list:
            with open(path) as lines:
                for line in lines:
                    yield self.parse(line)

    def parse(self, line):
        values = {}
        for pair in line.split():
            slot, value = pair.split(":")
            values.setdefault(slot, []).append(value)
        label = np.array(values["click"], np.int64)
        ids = [np.array(values[str(slot + 1)], np.int64) for slot in range(self.slots)]
        return [label, *ids, np.array(values["dense"], np.float32)]
