"""deploy/elastic/etcd.yaml: the etcd that Paddle's elastic manager looks for. Pure.

Jobs find it by the variables that Kubernetes makes of a Service's name, in the same namespace
(PADDLE_ELASTIC_ETCD_SERVICE_HOST, _PORT); so it has no namespace here. `paddock launch` needs none.
"""

from __future__ import annotations

from paddock.operator.manifests.crd import HEAD, Tree, to_yaml
from paddock.operator.names import ELASTIC_ETCD, ELASTIC_ETCD_PORT

IMAGE = "quay.io/coreos/etcd:v3.5.21"
NOTE = """\
# An etcd for elastic jobs that run Paddle's own launcher: apply it to their namespace.
# One member, nothing kept: it holds who is present, and jobs write that again.
"""
USER = 65532


def etcd_text() -> str:
    """A Deployment of one etcd, and its Service."""
    labels = {"app.kubernetes.io/name": ELASTIC_ETCD, "app.kubernetes.io/part-of": "paddock"}
    url = f"http://0.0.0.0:{ELASTIC_ETCD_PORT}"
    container: Tree = {
        "name": "etcd",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "etcd",
            "--data-dir=/data/etcd",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls=http://{ELASTIC_ETCD}:{ELASTIC_ETCD_PORT}",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=1h",
        ],
        "ports": [{"name": "client", "containerPort": ELASTIC_ETCD_PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": "client"}, "periodSeconds": 5},
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod: Tree = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}],
    }
    deployment: Tree = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": ELASTIC_ETCD, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    ports = [{"name": "client", "port": ELASTIC_ETCD_PORT, "targetPort": "client"}]
    service: Tree = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": ELASTIC_ETCD, "labels": labels},
        "spec": {"selector": labels, "ports": ports},
    }
    return HEAD + NOTE + to_yaml(deployment, service)
