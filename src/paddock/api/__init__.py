"""Paddock from Python: the same jobs, plans and runs as the commands.

launch    paddock.launch: a job on this machine, from a script, a module or a function
submit    paddock.submit: the same job on a site
job       make_job, explain: a job and its plan as values
sweep     paddock.sweep: a run for each point of a grid, and a table
run       Run: wait for it, its results, status and logs; stop it
results   what the function of a run returned or raised, read from the files of its ranks
check     whether targets and keywords are of the right kinds
cell      the line below a notebook's cell: how far the other ranks are
errors    RankFailedError, RunFailedError: which rank failed first, where, and why
ranks     rank(), world_size(), should_stop() ...: for code that runs in a rank
function  a function and its arguments as a call file
call      runs that function in a rank; a script that imports nothing of paddock
checkpoint  a callable with checkpoint(), as submitit has it, which goes on after a requeue
rank      runs call in a rank of this machine, from its compiled file
"""
