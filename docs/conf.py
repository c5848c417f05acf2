"""How the documentation is built: ``pip install '.[docs]'``, then ``sphinx-build -n -W docs out``. Needs no network.

Graphviz draws the diagrams; where its ``dot`` is not installed, they are given as text.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import shutil
from typing import Any

from docutils import nodes
from sphinx.ext.napoleon.docstring import GoogleDocstring
from statemachine.contrib.diagram.formatter import formatter
from statemachine.contrib.diagram.sphinx_ext import StateMachineDiagram

project = "turnstate"
copyright = "the authors of turnstate"
version = release = importlib.metadata.version("turnstate")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "statemachine.contrib.diagram.sphinx_ext",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"turnstate {version}"
html_show_sourcelink = False
myst_enable_extensions = ["deflist", "fieldlist"]
myst_heading_anchors = 3

nitpicky = True
# Names of other projects, and what an annotation spells that is no object of ours: type variables, aliases of unions.
nitpick_ignore_regex = [
    (r"py:.*", r"(trio|httpx|attrs?|cattrs|msgspec|statemachine|typing|typing_extensions|collections|pathlib)\..*"),
    (r"py:.*", r"(str|int|float|bool|bytes|object|dict|list|tuple|set|frozenset|type|None|optional|Ellipsis|\.\.\.)"),
    (r"py:.*", r"decimal\.Decimal"),
    (r"py:.*", r"(Exception|BaseException|ValueError|TracebackType|types\.TracebackType|ABC|abc\.ABC|Path)"),
    (r"py:.*", r"(Any|Callable|Awaitable|AsyncIterator|Iterable|Mapping|Sequence|Literal|Generic|Protocol|ParamSpec)"),
    (r"py:(class|obj)", r"(turnstate\.\w+(\.\w+)?\.)?(D|P|R|S|Out|Reader|Carry)|os\.PathLike"),
    (r"py:class", r"turnstate\.tools\.base\.Tool\[.*"),  # with its arguments
    (r"py:class", r"turnstate\.models\.wire\.secret\.Secret.*"),  # what an option is kept in
    (r"py:.*", r"(AbstractAsyncContextManager|contextlib\..*|enum\..*|builtins\..*|functools\..*|inspect\..*|ssl\..*)"),
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Only what the pages test by name; docstrings are run by pytest.
doctest_test_doctest_blocks = ""


PUBLIC = (
    "turnstate",
    "turnstate.models",
    "turnstate.models.wire.http",
    "turnstate.models.wire.http_model",
    "turnstate.models.openai_chat.settings",
    "turnstate.models.openai_responses.settings",
    "turnstate.models.anthropic.settings",
    "turnstate.models.gemini.settings",
    "turnstate.policy",
    "turnstate.stores",
    "turnstate.states",
    "turnstate.testing",
    "turnstate_states.errors",
    "turnstate_states.machine",
)


def _public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolve a name from where it is defined to where it is documented, ``turnstate_states.turn.Call`` to ``Call``."""
    domain = env.domains["py"]
    name = node.get("reftarget", "").rpartition(".")[2]
    for module in PUBLIC:
        if node.get("refdomain") == "py" and f"{module}.{name}" in domain.objects:
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", f"{module}.{name}", node, content)
    return None


def _as_written(docstring: Any) -> list[str]:
    """The docstring of an attribute as it stands: a colon in it does not end a type."""
    return list(docstring._consume_to_end())


class _WrittenDiagram(StateMachineDiagram):
    """The diagram as text."""

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].rpartition(".")
        text = formatter.render(getattr(importlib.import_module(module), name), "mermaid")
        return [nodes.paragraph(text=self.options.get("caption", "")), nodes.literal_block(text, text, language="text")]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    if shutil.which("dot") is None:
        app.add_directive("statemachine-diagram", _WrittenDiagram, override=True)
    GoogleDocstring._parse_attribute_docstring = _as_written  # type: ignore[method-assign]
    app.connect("missing-reference", _public_name)
