"""The files that install the operator: definitions, permissions, Deployment, charts. Pure.

``python -m paddock.operator.manifests --write deploy`` writes them; a test compares them.
"""
