"""Optimizers that run on the servers, the same bits with numba and numpy.

rule          an optimizer's options, slots and update
rules         the optimizers, each with its source; paddle_rules has Paddle's own numbers
paddle_rules  adam and rmsprop as Paddle's kernels compute them
guards        clipping, l1, l2 and bounds
updater       one table's optimizer
schedules     learning rates over steps
"""
