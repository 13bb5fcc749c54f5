"""Jobs as objects of a cluster: a PaddleJob, an Indexed Job, or a Job of Volcano.

Pure:
    options      options of pods from the site and the command line, checked
    words        the command line of every node: the shell line, the launcher's arguments
    pods         the pod template: image, environment, resources, volumes, the program, the key
    forms        the three kinds of jobs; a PaddleJob that -f names
    objects      Submission -> the objects, in the order they are made, and the plan
    shown        an object as YAML, and why each line stands in it
    parse        job and pods -> JobStatus
Acting:
    planner      reads files and plans, without a cluster; packs what is sent for a ConfigMap
    api          calls to the API server; refusals -> one sentence
    follow       the logs of all pods as one stream of log chunks
    watched      PaddleJobs that others have made, as runs
    driver       the backend

Pods need no RBAC: host names and node ranks are known before they start.
"""
