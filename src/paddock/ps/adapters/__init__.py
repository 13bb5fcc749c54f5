"""Layers of torch, Paddle and JAX on the tables, but for what is the framework's. numpy only.

arguments    optimizers, specs, poolings and offsets as a user gives them
framework    the functions that an adapter calls of its framework
options      options of a framework's embedding that are refused, and why
rows         a sparse table: looked up by distinct id, gradients pushed as one
embedding    an embedding; collection has several of them, in one round trip
collection   EmbeddingCollection and its KeyedJagged
dense        parameters and buffers as flat tables
freshness    when a model has its dense values looked up anew, before it computes
trainer      a batch: backward, push, step, pull
"""
