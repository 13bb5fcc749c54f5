"""What is decided about a job: values in, values out. Imports nothing that acts.

job, hosts, plan       intent, facts, decision
messages, membership   what nodes say, and the machine of the whole job; its parts: roster (who is
                       in), gathering (when to start), attempt, leaving, judging (what follows)
supervisor             the machine of one node's processes
exits, policy          how something ended, who was first, whether another attempt follows
"""
