"""The files that install the operator: definitions, permissions, Deployment, charts. Pure.

``python -m paddock.operator.manifests --write deploy`` writes them; a test compares them.

crd            the definition, from the table of schema.py
rules          its CEL rules
install        namespace, Deployment, Service, bindings
permissions    RBAC rules of the operator and of users
admission      the admission policy of the operator's account
files          every generated file of deploy/
__main__       writes them
"""
