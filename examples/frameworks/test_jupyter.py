"""Jupyter: cells of a notebook, which may use `await` and keep a broker between them."""

import nbformat
from nbclient import NotebookClient

CELLS = [
    "import ottla\nbroker = ottla.serve(partitions=1)\nbroker.start()\nbroker.bootstrap",
    "broker.topic('orders').append(['a', 'b'])\n(await broker.topic('orders').wait_for_async()).text",
    "broker.topic('orders').expect(['a', 'b'])\nbroker.stop()",
]


def test_a_notebook():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    assert notebook.cells[1].outputs[0].data["text/plain"] == "'a'"
