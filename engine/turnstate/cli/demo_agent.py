"""The program that `turnstate demo` runs: an agent that charges a card and sends a receipt.

With a model of your own in place of `scripted` it is a whole program:

    from turnstate.models import OpenAIChat
    agent = Agent(OpenAIChat("qwen3", base_url="http://localhost:8000/v1"), ...)
"""

from __future__ import annotations

from pathlib import Path

import trio

from turnstate import Agent, Engine, SQLiteStore, ToolContext, tool
from turnstate.cli.demo_model import scripted

MESSAGE = "Order A-17 is packed. Charge the card and mail the receipt to ana@example.org."


class Shop:
    """What the tools work with: files stand for the bank and the mail server."""

    def __init__(self, files: Path, slow: str = "") -> None:
        self.ledger = files.with_suffix(".ledger")
        self.outbox = files.with_suffix(".outbox")
        self.slow = slow

    async def confirmation(self, tool: str) -> None:
        """Wait for the answer of the other side. The demo has one take long, and kills the process meanwhile."""
        await trio.sleep(60 if tool == self.slow else 0)


@tool
async def look_up_order(order: str) -> str:
    """Look up an order."""
    return f"{order}: 2 tickets, 120.00 EUR, card on file, not paid"


async def find_charge(ctx: ToolContext[Shop]) -> str | None:
    """Look whether the charge of this call is in the ledger. None: it is not, so charging may begin."""
    ledger = trio.Path(ctx.deps.ledger)
    lines = (await ledger.read_text()).splitlines() if await ledger.exists() else []
    return next((f"found in the ledger: {line}" for line in lines if ctx.idempotency_key in line), None)


@tool(approval=True, on_crash=find_charge)
async def charge_card(order: str, euros: float, ctx: ToolContext[Shop]) -> str:
    """Charge the card of an order's customer."""
    line = f"{euros:.2f} EUR for {order} [{ctx.session_id}, key {ctx.idempotency_key}]"
    async with await trio.open_file(ctx.deps.ledger, "a") as ledger:
        await ledger.write(f"{line}\n")
    await ctx.deps.confirmation("charge_card")
    return f"charged {line}"


@tool(approval=True)
async def send_receipt(order: str, to: str, ctx: ToolContext[Shop]) -> str:
    """Mail the receipt of an order."""
    async with await trio.open_file(ctx.deps.outbox, "a") as outbox:
        await outbox.write(f"receipt for {order} to {to} [{ctx.session_id}, key {ctx.idempotency_key}]\n")
    await ctx.deps.confirmation("send_receipt")
    return f"sent to {to}"


agent: Agent[Shop] = Agent(scripted, instructions="You close orders.", tools=[look_up_order, charge_card, send_receipt])


async def main(db: Path, name: str = "demo", slow: str = "") -> None:
    """Start the turn, or go on with the one that is stored. Another process follows it and answers, see `Client`."""
    async with Engine(agent, SQLiteStore(db), deps=lambda info: Shop(db, slow)) as engine:
        session = engine.session(name)
        begun = (await session.info()).unfinished
        async with session.resume() if begun else session.turn(MESSAGE) as turn:
            async for _ in turn:
                pass  # a program of your own would show the events here


if __name__ == "__main__":
    trio.run(main, Path("demo.db"))
