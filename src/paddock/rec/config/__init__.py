"""Three generations of config.yaml and two of backend.yaml, read into one typed value.

args      the command's arguments
document  YAML -> a tree that knows the line of each key; what -o changes in it
keys      a table of keys -> values of the right type, and what is wrong; our own; secrets
forms     the generations of config.yaml: 2.x, rec/compat has those before; unread keys
backend   backend.yaml -> Cluster; the engine and the counts
folder    where -m, {workspace} and paddlerec:: lead; the kind of a model's folder
resolve   all of it: arguments -> Recipe
dry_run   a Recipe for people, with where each setting comes from
"""
