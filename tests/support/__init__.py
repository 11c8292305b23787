"""What several tests share. Import it as `support`: pytest has the folder `tests` on its path."""

import pkgutil

import pytest

# pytest explains failed assertions of test files by itself, those of other modules when asked.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
