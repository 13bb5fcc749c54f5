"""Files of the old tools, read as a Site.

fabric      conf.py of Paddle's Fabric tool (cluster_train), as literals
paddlerec   PaddleRec's backend.yaml
"""
