"""``PYTHONPATH=docs python -m reference_pages docs/reference``: writes the generated pages."""

import sys
from pathlib import Path

from reference_pages import pages

for name, text in pages().items():
    path = Path(sys.argv[1], name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
