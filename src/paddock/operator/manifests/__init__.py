"""The files that install the operator: definitions, permissions, Deployment, charts. Pure.

``python -m paddock.operator.manifests --write deploy`` writes them; a test compares them.

crd            the definition, from the tables of schema.py and rules.py
install        namespace, Deployment, Service, bindings
permissions    RBAC rules of the operator and of users, admission policy of its account
__main__       every generated file of deploy/, and the command that writes them
"""
