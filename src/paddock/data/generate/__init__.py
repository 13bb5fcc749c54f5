"""Generated data whose best possible score is known: a module for each kind."""
