"""PaddleRec 2.x model folders, unchanged: config.yaml, net.py, dygraph_model.py, *_reader.py.

folder          a folder's modules are imported, its model and data sets made
learner         loads a folder; trains its model
reading         batches of the user's RecDataset, dealt to the workers
optimizer       a user's paddle.optimizer as rules of the servers
server_trainer  a user's model with its parameters on the servers
rows            an nn.Embedding whose rows are on the servers
paddle_patches  behaviours of Paddle 2, and of a model on servers, while a user's code runs
"""
