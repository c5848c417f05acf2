"""The script of the demo's model: what it says follows from what it is told, as with a real one."""

from __future__ import annotations

import re

from ..models.base import ModelRequest
from ..states import ToolResult
from ..testing import ScriptedCall, ScriptedModel, call

__all__ = ["scripted"]


def reply(request: ModelRequest) -> str | list[str | ScriptedCall]:
    """The next reply, from the results so far and what people said."""
    results = _results(request)
    if "look_up_order" not in results:
        return ["I look the order up.", call("look_up_order", order="A-17")]
    charge = results.get("charge_card")
    if charge is None:
        return ["The order comes to 120.00 EUR.", call("charge_card", order="A-17", euros=120.0)]
    if charge.status != "ok":
        return f"Then the card stays as it is. I was told: {charge.text}"
    receipt = results.get("send_receipt")
    if receipt is None:
        return ["The card is charged. Now the receipt.", call("send_receipt", order="A-17", to=_address(request))]
    if receipt.status == "ok":
        return f"Order A-17 is closed: {_euros(charge)} EUR charged, receipt {receipt.text}."
    if receipt.status == "unknown":
        return (
            f"The card was charged {_euros(charge)} EUR. Whether the receipt went out I cannot say: the process died "
            "before the mail server answered. I do not send it a second time on a guess; please look into the outbox."
        )
    return f"The card was charged {_euros(charge)} EUR, and no receipt was sent. I was told: {receipt.text}"


def _results(request: ModelRequest) -> dict[str, ToolResult]:
    """The last result of each tool."""
    tools = {part.id: part.name for message in request.messages for part in message.calls}
    return {tools[result.call]: result for message in request.messages for result in message.results}


def _address(request: ModelRequest) -> str:
    said = " ".join(message.text for message in request.messages if message.role == "user")
    found: list[str] = re.findall(r"\w+@[\w.]*\w", said)
    return found[-1]


def _euros(charge: ToolResult) -> str:
    found = re.search(r"([\d.]+) EUR", charge.text)
    return found[1] if found else "?"


scripted = ScriptedModel(reply, name="scripted")
