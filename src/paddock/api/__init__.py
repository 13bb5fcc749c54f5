"""Paddock from Python: the same jobs, plans and runs as the commands.

launch.py    paddock.launch: a job on this machine, from a script, a module or a function
submit.py    paddock.submit: the same job on a site
run.py       Run: wait for it, its results, status, logs; stop it
errors.py    RankFailedError and RunFailedError: which rank failed first, where, and why
job.py       make_job and explain: a job and its plan as values
ranks.py     rank(), world_size(), should_stop() ...: for code that runs in a rank
function.py  packs a function and its arguments into a file
call.py      runs that function in a rank; a script without imports of paddock
"""
