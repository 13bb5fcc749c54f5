"""The group of trainers: who takes part, which step is done, who waits. Server 0 coordinates it.

state        GroupState: events in, records and replies out; its table is the strategies' rules
waits        who waits at a step, and the ends that time puts to a wait; state builds on it
barriers     named barriers of all members
messages     events, records and replies
coordinator  GroupCoordinator: runs the state in server 0, with clock, log and connections
"""
