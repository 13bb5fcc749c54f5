"""The shell of one node among many: find the others, agree, carry out."""
