"""The operator: the PaddleJob custom resource and its controller.

Pure, values in and values out:

reconcile      decides what to do about one job now; the table of all rows
deploy         makes missing pods and objects, opens the start gate
ending         when a job is complete; ends it, removes its pods, and the job after its ttl
job_view       one job at one moment: pods of this attempt, leftovers, failures
outcome        what happened to a pod, and the cause
silence        what a pod that does not say why it waits shows
policies       restart, gang
status         reads and writes the status, and the controller's state in it
messages       sentences for status.message, conditions and events
decision       ObservedState, Decision, actions and settings
spec           the fields of a PaddleJob, and JobSpec
fields.yaml    the table of every field: definition, reference, validation
schema         reads that table, and checks each field by itself
rules          the rules between fields, each in CEL and in Python
read_spec      checks a whole spec; the JobSpec
environment    the environment variables of a pod
pods           manifests of pods, Services and the ConfigMap
quantity       amounts of resources
names          labels, annotations, objects, ports

Acts, or runs as a command:

options        flags of ``paddock operator run``
run            the operator process
verify         ``paddock operator check``
runtime        caches, queue, leader election, executor, events, metrics, installer
manifests      the files that install the operator
"""
