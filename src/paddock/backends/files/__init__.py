"""The user's code and data on their way to the hosts: a package, by content, and how it spreads.

package   a folder -> the list of its files, and those that a host lacks
ignore    the files that git and the globs of .paddockignore leave out
hashes    the hash cache: a file that has not changed is not hashed again
data      the shards of numbered files that each host gets (pure)
spread    hosts give contents to hosts, as a tree
program   the launcher itself, as an archive by its hash
"""
