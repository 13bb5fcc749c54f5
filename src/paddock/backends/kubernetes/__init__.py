"""Jobs as objects of a cluster: a PaddleJob, an Indexed Job, or a Job of Volcano.

Pure:
    options.py    what a site and --words say of pods, checked
    words.py      what every node runs: the shell line, the launcher's words
    pods.py       the pod template: image, resources, volumes, the program, the key
    forms.py      the three kinds of jobs
    objects.py    Submission -> the objects, in the order they are made, and the plan
    shown.py      an object as YAML; reasons.py: why a line stands there
    parse.py      job and pods -> Status
    lines.py      a pod's log with times -> pieces by process
Acting:
    planner.py    reads files and decides: what is planned and what is made, without a cluster
    pack.py       a small package as an archive for a ConfigMap
    api.py        the calls of a submission; what was refused -> one sentence
    follow.py     the logs of all pods as one stream
    driver.py     the backend

No right to read pods is needed inside of a pod: names and numbers are known before.
"""
