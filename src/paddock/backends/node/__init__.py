"""What runs on the hosts of a submission. The standard library only: it travels as an archive.

boot.py     the first words over ssh: finds the archive, or asks for it
main.py     answers requests, one line of JSON each, until its input ends
attend.py   the process that stays: starts the launcher, keeps its console and how it ended
logs.py     a job's logs on this host as one stream, in order of time
jobdir.py   where a job's files are, and what can be told from them
files.py    requests about files; manifest.py: what is in a package, and what of it is refused
carried.py  the parameter server, when it came with the launcher
store.py    contents by their hash; receiver.py: on their way there; relay.py: to another host
place.py    a package becomes a directory; workspace.py: what --workspace has of a job
"""
