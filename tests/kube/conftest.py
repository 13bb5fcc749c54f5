"""Shows what the checks shared with the real server compared, as in a test's own file."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("kube.client_twins")
