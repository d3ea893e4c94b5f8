"""Schemathesis: whatever the gateway's own description allows is answered, and what it does not allow is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .gateways import running_gateway

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "negative_data_rejection,unsupported_method"
)


@pytest.mark.timeout(240)
def test_the_description_is_true(server, tmp_path):
    schemathesis = str(Path(sys.executable).parent / "schemathesis")
    with running_gateway(tmp_path / "log", [server.grpc], "--tokenizer", "all-MiniLM-L6-v2") as gateway:
        description = json.loads(gateway.get("/openapi.json"))
        for path in description["paths"].values():
            # Schemathesis would ask for answers within a hundredth of a second, and take a 504 for a fault.
            path.get("post", {}).pop("parameters", None)
        (tmp_path / "openapi.json").write_text(json.dumps(description))
        command = [schemathesis, "run", str(tmp_path / "openapi.json"), "--url", gateway.url, "--seed", "1"]
        command += ["--phases", "examples,coverage,fuzzing", "--max-examples", "5", "--checks", CHECKS, "--no-color"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=200)
        assert done.returncode == 0, done.stdout
        assert "Traceback" not in gateway.log()
