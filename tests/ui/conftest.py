import pytest

from tests.service.conftest import clip, fake_service, form, new_service  # noqa: F401


@pytest.fixture
def anyio_backend():
    return "asyncio"
