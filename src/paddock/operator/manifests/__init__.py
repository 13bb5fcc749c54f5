"""The files that install the operator: definitions, permissions, Deployment, charts. Pure.

``python -m paddock.operator.manifests --write deploy`` writes them; a test compares them.

operator.yaml  every object but the definition: RBAC rules, admission policy, Deployment
crd            the definition, from the tables of fields.yaml and rules.py
install        the objects of operator.yaml as one installation has them
__main__       every generated file of deploy/, and the command that writes them
"""
