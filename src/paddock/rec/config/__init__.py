"""Three generations of config.yaml and two of backend.yaml, read into one typed value.

args      the command's arguments
document  YAML -> a tree that knows the line of each key; what -o changes in it
keys      a table of keys -> values of the right type, and what is wrong; Paddock's own keys
v2        the tables of 2.x, and the runs they describe; rec/compat has those before it
backend   backend.yaml -> Cluster; the engine and the counts
folder    where -m, {workspace} and paddlerec:: lead; the kind of a model's folder
unused    keys that nothing reads
build     values by field -> TrainingRun
resolve   all of it: arguments -> Recipe
dry_run   a Recipe for people, with where each setting comes from
"""
