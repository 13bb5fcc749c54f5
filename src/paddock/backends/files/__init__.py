"""The user's code and data on their way to the hosts: what goes, by content, and how it spreads.

package.py  a folder -> the list of its files, and those that a host lacks
ignore.py   what git ignores, and the globs of .paddockignore
hashes.py   the hash of a file that has not changed is not computed again
data.py     which host gets which shard (pure)
spread.py   hosts give to hosts, as a tree
program.py  the launcher itself, as an archive by its hash
"""
