"""Staging: the user's code and data are sent to the hosts, by content.

package   a folder -> the list of its files, and those that a host lacks
ignore    the files that git and the globs of .paddockignore leave out
stayed    the file that a job missed on its host, and that a rule kept here
own       Paddock's own directories, which never travel; homes and keys, which are refused
hashes    the hash cache: a file that has not changed is not hashed again
data      the shards of numbered files that each host gets (pure)
spread    tree fan-out: hosts send contents to hosts
program   the launcher itself, as an archive by its hash
"""
