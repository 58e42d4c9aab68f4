"""Whose things a page shows."""

from types import SimpleNamespace

import gradio as gr
import pytest

from cosyui.ui.controls import uploads_only
from cosyui.ui.owner import drawn, owner_of


def request(username=None, session="tab1"):
    return SimpleNamespace(username=username, session_hash=session)


def test_a_browser_keeps_its_name_and_a_login_comes_first():
    name = drawn("")
    assert drawn(name) == name
    assert owner_of(request(session="tab1"), name) == owner_of(request(session="tab2"), name)
    assert owner_of(request("ann"), name) == owner_of(request("ann"), drawn("")) == "user:ann"


@pytest.mark.parametrize("sent", ["", None, 7, "x" * 32, "user:ann", "a" * 33, ["a" * 32], {"a": 1}])
def test_what_is_no_name_of_ours_is_nobody(sent):
    assert drawn(sent) != sent
    assert owner_of(request(session="tab1"), sent) == "tab:tab1"


@pytest.mark.anyio
async def test_an_address_in_place_of_a_file_is_not_fetched():
    with gr.Blocks():
        file = uploads_only(gr.File())
    with pytest.raises(gr.Error, match="Upload it"):
        await file.async_move_resource_to_block_cache("http://127.0.0.1:9/lines.csv")
