"""``turnstate diagram``."""

from __future__ import annotations

from statemachine.contrib.diagram import GraphvizError, GraphvizNotFoundError

from turnstate_states.errors import TurnstateError

from ..states import TurnMachine
from .streams import Console

__all__ = ["diagram"]


def diagram(format: str, console: Console) -> int:
    """Print the machine.

    Raises:
        TurnstateError: something that drawing needs is not installed.
    """
    try:
        text = f"{TurnMachine:{format}}"
    except ImportError as error:
        needs = "install it with: pip install 'python-statemachine[diagrams]' (and Graphviz, for its `dot` program)"
        raise TurnstateError(f"svg needs the Python package {error.name}; {needs}") from error
    except GraphvizNotFoundError as error:
        text = "svg needs Graphviz: install it, so that the program `dot` is found (apt install graphviz)"
        raise TurnstateError(text) from error
    except GraphvizError as error:
        raise TurnstateError(f"Graphviz could not draw it: {error}") from error
    console.out.write(f"{text.strip()}\n")
    return 0
