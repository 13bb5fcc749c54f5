"""The trainer's half: routing, windows, resending. numpy in, numpy out."""
