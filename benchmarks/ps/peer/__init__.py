"""PaddlePaddle 2.6.2's parameter server, driven as a job would drive it.

micro.py and train.py run under the peer's own Python (3.8 to 3.12) and import nothing of ours but
their neighbour fleet_job.py; install.py and job.py run under ours.
"""
