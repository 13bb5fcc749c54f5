"""Shard ownership: which shards of a table a server has, and their migration to another server.

ownership  ShardOwnership: who does what in which phase; pure
records    the records that change an owner, carried out on a table
migrator   ShardMigrator: runs a migration in threads, and ends one that was interrupted
"""
