import pytest

from lazuli import errors

CODES = {
    errors.LazuliError: "INTERNAL",
    errors.ConfigError: "INVALID_ARG",
    errors.InputError: "INVALID_ARG",
    errors.OptionError: "INVALID_ARG",
    errors.OverloadedError: "UNAVAILABLE",
    errors.DeadlineExceededError: "CANCELLED",
    errors.RequestCancelledError: "CANCELLED",
    errors.ShuttingDownError: "UNAVAILABLE",
    errors.ReplyError: "UNAVAILABLE",
    errors.NonFiniteError: "INTERNAL",
    errors.DeviceError: "INTERNAL",
}


@pytest.mark.parametrize(("error", "code"), CODES.items())
def test_triton_code(error, code):
    assert error("why").triton_code == code
    assert str(error("why")) == "why"


def test_every_class_of_the_module_is_in_the_table():
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert classes == set(CODES)


def test_tree():
    assert issubclass(errors.OptionError, errors.InputError)
    assert all(issubclass(error, errors.LazuliError) for error in CODES)
    assert not issubclass(errors.ConfigError, errors.InputError)


def test_every_class_and_its_code_stand_in_the_drawing():
    for error, code in CODES.items():
        line = next(line for line in errors.__doc__.splitlines() if error.__name__ in line)
        assert code in line
