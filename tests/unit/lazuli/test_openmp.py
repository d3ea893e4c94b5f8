import subprocess
import sys

import pytest


@pytest.mark.parametrize(("given", "expected"), [(None, "2000"), ("7", "7")])
def test_the_spin_count_is_set_unless_somebody_chose_one(given, expected):
    environ = {} if given is None else {"GOMP_SPINCOUNT": given}
    code = "import os, sys, lazuli.openmp; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected, "False"]
