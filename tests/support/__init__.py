"""Code that several tests share. Import it as `support`: pytest adds the folder `tests` to its path."""

import pkgutil

import pytest

# pytest rewrites the assertions of test files by itself; other modules must be registered.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
