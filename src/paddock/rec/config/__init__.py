"""Three generations of config.yaml and two of backend.yaml, read into one typed value.

args.py       the command's words
document.py   YAML -> a tree that knows the line of each key; what -o changes in it
secret.py     which values are not shown
keys.py       a table of keys -> values of the right type, and what is wrong with them
v2.py         the tables of 2.x, and the runs they describe; compat has those before it
paddock_keys.py  keys of Paddock's own, the same in all forms
backend.py    backend.yaml -> Cluster
places.py     where -m, {workspace} and paddlerec:: lead
folder.py     what a model's folder has: its contract, and what of it cannot run
where.py      the engine and the counts
unused.py     keys that nothing reads
build.py      values by field -> TrainingRun
reference.py  every key as a page
resolve.py    all of it: words -> Recipe
dry_run.py    a Recipe for people, with where each setting comes from
"""
