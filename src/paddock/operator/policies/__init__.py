"""The policies of a job, pure: values in, an answer out. reconcile.py asks them in its order.

restart     decides whether the job restarts after a failure, and names the culprit
gang        PodGroups of Volcano and scheduler-plugins; Kueue
"""
