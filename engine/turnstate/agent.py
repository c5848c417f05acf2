"""An agent: a model, what it is told, the tools it may use, and the rules it runs under."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, overload

import attrs
from typing_extensions import TypeVar

from turnstate_states import checks
from turnstate_states.errors import InvalidInput
from turnstate_states.rules import Limits, Rules, ToolSpec

from .middleware.base import Middleware, commands_of, has_hook
from .models.base import Model
from .policy import AsDeclared, Policy
from .tools import Tool, ToolContext, ToolSet
from .tools.base import Approval

__all__ = ["Agent", "Limits"]

D = TypeVar("D", default=None)
AnyTool = Tool[..., Any] | Callable[..., Any]


def _text(instructions: str) -> str:
    if callable(instructions):
        raise InvalidInput(
            "instructions: expected text, got a function; what differs from request to request is added by a middleware: "
            "ctx.request.add(text) in before_model"
        )
    return checks.text("instructions", instructions)


class Agent(Generic[D]):
    """What runs in a session. It holds no state of any session: one agent serves any number of them.

    Args:
        model: the adapter of a provider, or a name that :func:`turnstate.models.resolve` knows ("openai:gpt-...").
        instructions: what the model is told first (the system prompt).
        tools: functions, or :func:`~turnstate.tool` objects.
        middleware: hooks, run in this order.
        policy: who decides on calls; by default what each tool declares.
        limits: when a turn ends by itself.

    Raises:
        InvalidInput: an argument cannot be used; the text says which and why.
    """

    @overload
    def __init__(
        self,
        model: Model | str,
        *,
        instructions: str = "",
        tools: Sequence[AnyTool] = (),
        middleware: Sequence[Middleware[D]] = ...,
        policy: Policy[D] | None = None,
        limits: Limits = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[None],
        model: Model | str,
        *,
        instructions: str = "",
        tools: Sequence[AnyTool] = (),
        limits: Limits = ...,
    ) -> None: ...
    def __init__(
        self,
        model: Model | str,
        *,
        instructions: str = "",
        tools: Sequence[AnyTool] = (),
        middleware: Sequence[Middleware[Any]] = (),
        policy: Policy[Any] | None = None,
        limits: Limits | None = None,
    ) -> None:
        if isinstance(model, str):
            from .models.naming import resolve

            model = resolve(model)
        if not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"model: expected a turnstate.models adapter or a name, got {checks.shown(model)}")
        self.model = model
        self.instructions = _text(instructions)
        self.tools = ToolSet.of(tools)
        self.middleware: tuple[Middleware[Any], ...] = checks.array(
            "middleware", middleware, Middleware, "Middleware objects"
        )
        checks.optional(checks.instance, "policy", policy, kind=Policy, expected="a Policy object")
        self.policy: Policy[Any] = AsDeclared() if policy is None else policy
        checks.optional(checks.instance, "limits", limits, kind=Limits, expected="Limits")
        self.limits = Limits() if limits is None else limits
        if self.limits.cost is not None and model.tells_cost is False and not self.middleware:
            raise InvalidInput(
                f"limits: cost cannot be held, since {type(model).__name__} never tells what a request costs; "
                "use Limits(tokens=...), or count it in a middleware: ctx.count_usage(model, Usage(cost=...))"
            )
        self.commands: dict[str, Callable[..., Awaitable[Any]]] = {}
        self._command_rules: dict[str, bool] = {}
        for item in self.middleware:
            for spec, carry in commands_of(item).items():
                if spec.name in self.commands:
                    raise InvalidInput(f"middleware: two carry out the command {spec.name}; it needs one owner")
                self.commands[spec.name] = carry
                self._command_rules[spec.name] = spec.active

    @functools.cached_property
    def rules(self) -> Rules:
        """What the machine knows of it."""
        return Rules(
            tools={name: self._spec(item) for name, item in self.tools.by_name.items()},
            limits=self.limits,
            commands=self._command_rules,
            before_model=bool(self.hooked("before_model")),
            after_model=bool(self.hooked("after_model")),
            turn_ended=bool(self.hooked("turn_ended")),
            makes_room=any(item.makes_room for item in self.hooked("before_model")),
        )

    def _spec(self, item: Tool[..., Any]) -> ToolSpec:
        return item.spec if type(self.policy) is AsDeclared else attrs.evolve(item.spec, approval="policy")

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        approval: Approval = False,
        exclusive: bool = False,
        timeout: float | None = None,
    ) -> Tool[[str, ToolContext[Any]], Awaitable[str]]:
        """This agent as a tool of another one, which gives it a task as text and reads its answer.

        Each call has a session of its own below that of the call (see :func:`turnstate.child_session`) with its own
        checkpoint: after a crash it goes on where it stood. What a person is asked in there surfaces in the session above,
        with the call's id in front (``m2.0/m3.0``), and is answered there. An interrupt ends both. Its tools get the deps
        of the agent above.

        Args:
            name: what the model calls it.
            description: what the model reads about it: what it can do, and when to use it.
            approval, exclusive, timeout: as for :func:`~turnstate.tool`.

        >>> from turnstate.testing import ScriptedModel
        >>> Agent(ScriptedModel([])).as_tool("research", "Find out something.").name
        'research'
        """
        from .nested import AgentTool

        return AgentTool(self, name, description, approval=approval, exclusive=exclusive, timeout=timeout)

    def hooked(self, name: str) -> list[Middleware[Any]]:
        """The middleware that has this hook, in order."""
        return [item for item in self.middleware if has_hook(item, name)]


def agents_of(agent: Agent[Any]) -> list[Agent[Any]]:
    """An agent, and those that are its tools, or tools of those; each once."""
    found = [agent]
    for holder in found:
        for tool in holder.tools.by_name.values():
            inner = getattr(tool, "agent", None)
            if isinstance(inner, Agent) and inner not in found:
                found.append(inner)  # pyright: ignore[reportUnknownArgumentType]
    return found
