"""`lazuli doctor`: runs all checks of this machine and prints them.

Takes options; prints a table and returns the exit code. Knows what is checked, not how.
"""

import shutil

from lazuli.launch import checks
from lazuli.launch.checks import Check, Status
from lazuli.launch.errors import LaunchError
from lazuli.launch.options import ServeOptions
from lazuli.launch.repository import find_repositories, model_names
from lazuli.launch.server_binary import find_server


def examine(options: ServeOptions) -> int:
    """Check the machine and print the result.

    Returns:
        1 if something that serving needs is missing, else 0.
    """
    results = all_checks(options)
    print(report(results), flush=True)
    return 1 if any(check.status is Status.FAIL for check in results) else 0


def all_checks(options: ServeOptions) -> list[Check]:
    """Run every check; those of the stub only if there is a server."""
    listing = checks.gpu_listing()
    return [
        *_server_checks(options),
        checks.check_torch(gpu_present=bool(listing)),
        checks.check_gpu(listing),
        checks.check_shared_memory(checks.shared_memory_bytes()),
        checks.check_default_model(),
        _check_repository(options),
        checks.check_ports(options),
        checks.check_cpu(checks.cpu_flags()),
    ]


def report(results: list[Check]) -> str:
    """The table, with the remedies below their lines."""
    width = max(len(check.name) for check in results)
    lines = []
    for check in results:
        lines.append(f"{check.status:<4}  {check.name:<{width}}  {check.detail}")
        if check.status is not Status.OK and check.remedy:
            lines.append(f"      {'':<{width}}  to mend it: {check.remedy}")
    count = sum(check.status is Status.FAIL for check in results)
    lines.append("ready to serve" if count == 0 else f"{count} of {len(results)} checks failed")
    return "\n".join(lines)


def _server_checks(options: ServeOptions) -> list[Check]:
    try:
        server = find_server(options.tritonserver)
    except LaunchError as error:
        container = "; or use the container (docker/Dockerfile)" if shutil.which("docker") else ""
        remedy = error.remedy + container
        return [
            checks.check_server(None, str(error), remedy),
            checks.check_numpy(None),
            checks.check_glibc(None),
        ]
    return [
        checks.check_server(server),
        checks.check_stub(server),
        checks.check_libpython(server),
        checks.check_numpy(server),
        checks.check_glibc(server),
    ]


def _check_repository(options: ServeOptions) -> Check:
    try:
        repositories = find_repositories(options.model_repositories)
    except LaunchError as error:
        return Check("models", Status.FAIL, str(error), error.remedy)
    found = [f"{repository}: {', '.join(model_names(repository))}" for repository in repositories]
    return Check("models", Status.OK, "; ".join(found))
