"""Recommendation models are trained from PaddleRec's two files: config.yaml and backend.yaml.

run, engines          the command `paddock rec`; the words of `launch` or `submit` that it becomes
config, compat        files and flags -> a Recipe; PaddleRec 0.1 and 1.8
settings              a Recipe and its runs, as typed values
preflight, online     problems found before anything starts; the schedule of an online run
worker                a worker program carries out the runs of a recipe
worker_group          workers together: alone, with servers; data_parallel has those without servers
data_parallel         copies of a model whose gradients are added up
loop, learner         the training loop, and the interface of the models that it trains and loads
bundled, dygraph      learners of the bundled models, and of PaddleRec 2.x folders
models                the bundled models
readers, sources      batches of a worker's files; resharded, leased and online data
checkpoints, resume   checkpoints are due, written, resumed; warm starts
pickles               reads files of paddle.save without running what a pickle may hold
metrics, report       metrics that add up over workers; lines, progress meter and curves
"""
