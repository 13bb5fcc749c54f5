"""The decisions about a job: values in, values out. Imports nothing that acts.

job, hosts, plan   intent, facts, decision
rendezvous         the job as its leader sees it: nodes, quorum, attempts, restarts, messages
attempt            one attempt on one node: processes, exits, root cause, restart decision
endpoint, secrets  addresses as text; which values are hidden
value              frozen values, and the types of their fields
"""
