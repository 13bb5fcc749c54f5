"""Files of the old tools, read as a Site.

fabric      conf.py of the old cluster tool, as literals
paddlerec   PaddleRec's backend.yaml
"""
