"""Files of the old tools, read as a Site.

fabric.py     conf.py of the old cluster tool, as literals
paddlerec.py  PaddleRec's backend.yaml
"""
