"""The program on the hosts of a submission. The standard library only: it travels as an archive.

boot       the first code over ssh: finds the archive, or asks for it
main       answers requests, one line of JSON each, until its input ends
daemon     the job daemon: starts the launcher, keeps its console and how it ended
logs       a job's logs on this host as one stream, in order of time
jobdir     paths of a job directory, its state by its files; job-name locks; unsafe roots
files      requests about files: upload, unpack, serve to a peer, fetch from a peer
manifest   the entries of a package, and which are refused as unsafe
carried    the parameter server, bundled with the launcher
store      the cache of file contents by their hash, and contents on their way into it
relay      contents from one host to another
place      unpacks a package into a directory
pack       log/ and output/ as a tar file, for fetch
wire       requests and answers as messages: a line of JSON, then bytes
workspace  links to a job's logs in --workspace
"""
