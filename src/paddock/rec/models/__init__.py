"""The bundled models, each a folder with config.yaml and model.py; `-m paddock.models.rank.dnn`.

net             a model is described with a Net: tables, layers, losses
inputs          columns of a batch, and hyper-parameters
clicks          click models share their columns, and the terms of a factorization machine
torch_nn        a Net of PyTorch, and its processes
paddle_nn       a Net of Paddle, and its processes
paddle_private  Paddle's private attributes, for all of rec
"""
