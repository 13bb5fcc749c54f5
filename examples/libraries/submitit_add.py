"""The first example of submitit's README, with another import.

python examples/libraries/submitit_add.py
"""

import paddock.compat.submitit as submitit


def add(a, b):
    return a + b


if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder="log_test")
    executor.update_parameters(timeout_min=1, slurm_partition="dev")
    job = executor.submit(add, 5, 7)  # will compute add(5, 7)
    print(job.job_id)  # ID of your job

    output = job.result()  # waits for completion and returns output
    assert output == 12
    print(output)
