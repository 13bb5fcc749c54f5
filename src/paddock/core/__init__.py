"""What is decided about a job: values in, values out. Imports nothing that acts.

job, hosts, plan       intent, facts, decision
messages, membership   what nodes say, and the state machine of the whole job: rendezvous, restarts
state                  what that machine knows: roster (who is in), attempt (what runs), quorum
                       (whose votes count), inherited (what a leader before has left)
gathering, judging     when an attempt starts; what follows one that stopped
leaving, rivals        nodes that leave; two leaders of one job
supervisor, warming    the machine of one node's processes; that of what is imported once
exits, policy          how something ended, the root cause; whether a restart follows
endpoint, secrets      addresses as text; what is not shown
value                  frozen values, and the types of their fields
"""
