"""Where jobs can run: profiles, host lists and the old tools' files, all of them read as one Site.

find.py       the word on the command line -> its Site
profile.py    paddock.toml over sites.toml
keys.py       what a site may say: one table
check.py      whether a site's table may stand as it is (pure)
hostfile.py   hosts as people write them (pure)
legacy/       conf.py of the old cluster tool, PaddleRec's backend.yaml
"""
