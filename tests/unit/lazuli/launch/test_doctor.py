from dataclasses import replace

import pytest

from lazuli.launch import checks, doctor
from lazuli.launch.checks import Check, Status
from lazuli.launch.server_binary import python_tag


def test_the_report_shows_remedies_where_needed():
    text = doctor.report(
        [Check("server", Status.OK, "here", "unused"), Check("numpy", Status.FAIL, "2.0", "pip install it")]
    )
    assert "to mend it: pip install it" in text
    assert "unused" not in text
    assert text.endswith("1 of 2 checks failed")


@pytest.mark.parametrize(("status", "code"), [(Status.OK, 0), (Status.WARN, 0), (Status.FAIL, 1)])
def test_only_failures_make_the_exit_code(monkeypatch, options, status, code, capsys):
    monkeypatch.setattr(doctor, "all_checks", lambda options: [Check("x", status, "", "do")])
    assert doctor.examine(options) == code
    assert capsys.readouterr().out.startswith(status)


def test_all_checks_run_on_this_machine(options):
    names = [check.name for check in doctor.all_checks(options)]
    assert {"server", "numpy", "torch", "gpu", "shared memory", "default model", "ports", "cpu"} <= set(names)


def test_the_stub_must_be_of_this_python(wheel):
    wheel.stub.write_bytes(b"\0libpython3.7.so.1.0\0")
    check = checks.check_stub(wheel)
    assert check.status is Status.FAIL
    assert check.detail == f"for Python 3.7, not {python_tag()}"


def test_numpy_2_fails_with_the_wheel_only(wheel, monkeypatch):
    monkeypatch.setattr(checks, "installed_version", lambda name: "2.1.0")
    assert checks.check_numpy(wheel).status is Status.FAIL
    assert checks.check_numpy(replace(wheel, backend=None)).status is Status.OK
    monkeypatch.setattr(checks, "installed_version", lambda name: "1.26.4")
    assert checks.check_numpy(wheel).status is Status.OK


def test_a_cpu_torch_beside_a_gpu_is_a_warning(monkeypatch):
    monkeypatch.setattr(checks, "installed_version", lambda name: "2.13.0")
    monkeypatch.setattr(checks, "torch_cuda", lambda: None)
    assert checks.check_torch(gpu_present=True).status is Status.WARN
    assert checks.check_torch(gpu_present=False).status is Status.OK
    monkeypatch.setattr(checks, "torch_cuda", lambda: "13.0")
    assert checks.check_torch(gpu_present=True).status is Status.OK


@pytest.mark.parametrize(
    ("listing", "status"), [(None, Status.OK), ("", Status.WARN), ("H200, 143771 MiB, 580", Status.OK)]
)
def test_gpus(listing, status):
    assert checks.check_gpu(listing).status is status


@pytest.mark.parametrize(
    ("free", "status"),
    [(None, Status.FAIL), (1 << 20, Status.FAIL), (64 << 20, Status.WARN), (1 << 30, Status.OK)],
)
def test_shared_memory(free, status):
    assert checks.check_shared_memory(free).status is status


def test_a_missing_default_model_matters_unless_another_is_set(monkeypatch):
    monkeypatch.setattr(checks, "installed_version", lambda name: None)
    assert checks.check_default_model().status is Status.FAIL
    monkeypatch.setenv("LAZULI_CHECKPOINT", "/x")
    assert checks.check_default_model().status is Status.OK


@pytest.mark.parametrize(
    ("libc", "status"),
    [(("glibc", "2.35"), Status.OK), (("glibc", "2.31"), Status.FAIL), (("", ""), Status.FAIL)],
)
def test_glibc(wheel, monkeypatch, libc, status):
    monkeypatch.setattr(checks.platform, "libc_ver", lambda: libc)
    assert checks.check_glibc(wheel).status is status


def test_a_plain_processor_is_a_warning():
    assert checks.check_cpu({"sse2"}).status is Status.WARN
    assert "amx_bf16" in checks.check_cpu({"amx_bf16", "avx2"}).detail
