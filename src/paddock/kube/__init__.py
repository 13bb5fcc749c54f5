"""A Kubernetes client: the objects that are read, the calls that are made.

client        KubeClient and Call, kinds of objects, KubeError
connect       kubeconfig or the Pod's account; TLS, credentials, proxies
http_client   HttpClient: the KubeClient of a real API server
objects       the slim shapes that are decoded and cached
replies       decoders of lists, events of a watch and refusals
resource      the path of a kind on the API server; needs the standard library only
"""
