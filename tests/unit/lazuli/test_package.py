import subprocess
import sys

import lazuli


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, lazuli; print([m for m in ('torch', 'numpy', 'tokenizers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_tokenizer_process_needs_no_torch():
    code = "import sys, lazuli.tokenizer; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_version():
    assert lazuli.__version__.count(".") == 2
