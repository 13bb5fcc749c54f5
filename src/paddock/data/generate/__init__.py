"""Generated data whose best possible score is known: a module for each kind.

write           writes files and manifest; the table of kinds; `generated:KIND?...` paths
criteo          clicks in the shape of Criteo's
census          incomes in the shape of the census data, for wide & deep
interests       items before and offered, for models of sequences
words           sentences of a small language
shapes          coloured shapes, 32 x 32
ceiling         the best score that a model can reach; lines of text from columns of numbers
"""
