"""The decisions about a job: values in, values out. Imports nothing that acts.

job, hosts, plan   the user's intent; facts about nodes; every process with rank, host and port
rendezvous         the job as its leader sees it: nodes, quorum, attempts, restarts, messages
attempt            one attempt: exits, root cause, restart decision; a node's processes
endpoint, secrets  addresses as text; which values are hidden
value              frozen values, and the types of their fields
"""
