"""Run a function in a rank of this machine by call.py, which Python compiles once for all ranks."""

import os
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path[0] != here:  # with PYTHONSAFEPATH; main() drops the entry
        sys.path.insert(0, here)
    from call import main  # type: ignore[import-not-found]

    del sys.modules["call"]  # the user's own module may have this name
    main(*sys.argv[1:])
