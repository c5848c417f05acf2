"""A model that is several."""

from __future__ import annotations

from typing import Any, get_args

import attrs
import pytest

from turnstate.models.base import DeltaKind, Model, ModelRequest, OnDelta, Reply
from turnstate.models.fallback import FALLBACK_ON, Fallback
from turnstate_states.content import Text
from turnstate_states.errors import InvalidInput, ModelError, ModelErrorKind


@attrs.define
class Fake(Model):
    """Tells some pieces, then fails or replies."""

    name: str = "a"
    error: Exception | None = None
    deltas: tuple[tuple[DeltaKind, str, int], ...] = ()
    model: str = ""
    asked: int = 0
    closed: int = 0
    close_error: Exception | None = None

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        """As it was told to."""
        self.asked += 1
        for delta in self.deltas:
            on_delta(*delta)
        if self.error is not None:
            raise self.error
        return Reply((Text(self.name),), model=self.model)

    async def aclose(self) -> None:
        """Counts, and fails if it was told to."""
        self.closed += 1
        if self.close_error is not None:
            raise self.close_error


REQUEST = ModelRequest("s", "a", "", ())


def down(kind: ModelErrorKind = "overloaded", **more: Any) -> ModelError:
    return ModelError(f"{kind}!", kind=kind, **more)


async def ask(model: Model) -> tuple[Reply, list[tuple[str, str, int]]]:
    told: list[tuple[str, str, int]] = []
    return await model.respond(REQUEST, lambda kind, text, slot: told.append((kind, text, slot))), told


async def test_the_first_that_can_answer_does() -> None:
    """The next model is asked only where one fails, and the reply names the one that answered."""
    one, two, three = Fake("a"), Fake("b", deltas=(("text", "b", 0),)), Fake("c")
    assert (await ask(Fallback(one, two)))[0].model == "a"
    assert two.asked == 0
    one.error = down()
    reply, told = await ask(Fallback(one, two, three))
    assert (reply.text, reply.model, told, three.asked) == ("b", "b", [("text", "b", 0)], 0)
    two.model = "b-2026"
    assert (await ask(Fallback(one, two)))[0].model == "b-2026"


@pytest.mark.parametrize("kind", get_args(ModelErrorKind))
async def test_only_given_errors_lead_to_the_next(kind: ModelErrorKind) -> None:
    """Errors that are about the request are raised as they are, unless they are asked for."""
    one, two = Fake("a", down(kind)), Fake("b")
    if kind in FALLBACK_ON:
        assert (await ask(Fallback(one, two)))[0].text == "b"
    else:
        with pytest.raises(ModelError) as caught:
            await ask(Fallback(one, two))
        assert caught.value is one.error
        assert two.asked == 0
    assert (await ask(Fallback(one, two, on=[kind])))[0].text == "b"


async def test_nothing_after_the_first_piece() -> None:
    """What was shown cannot be taken back, so its error is raised; a model that showed nothing is passed over."""
    silent, spoke, last = Fake("a", down()), Fake("b", down("cut"), (("reasoning", "hm", 0),)), Fake("c")
    with pytest.raises(ModelError) as caught:
        await ask(Fallback(silent, spoke, last))
    assert caught.value is spoke.error
    assert (silent.asked, spoke.asked, last.asked) == (1, 1, 0)


async def test_where_all_fail() -> None:
    """The last error is raised, or one before it if only that may be retried; notes tell the others."""
    with pytest.raises(ModelError) as caught:
        await ask(Fallback(Fake("a", down("not-found")), Fake("b", down("server", retryable=True))))
    assert (caught.value.kind, caught.value.__notes__) == ("server", ["a failed, too: not-found!"])
    with pytest.raises(ModelError) as caught:
        await ask(
            Fallback(Fake("a", down("rate-limit", retryable=True, retry_after=3.0)), Fake("b", down("not-found")))
        )
    assert (caught.value.retry_after, caught.value.__notes__) == (3.0, ["b failed, too: not-found!"])


async def test_other_exceptions_are_not_swallowed() -> None:
    """A mistake in an adapter is no reason to ask another model."""
    with pytest.raises(ZeroDivisionError):
        await ask(Fallback(Fake("a", ZeroDivisionError()), Fake("b")))


async def test_all_are_closed() -> None:
    """Closing closes every model, also after one that fails to, whose error is raised."""
    models = [Fake("a"), Fake("b", close_error=OSError("b")), Fake("c")]
    with pytest.raises(OSError, match="b"):
        await Fallback(*models).aclose()
    assert [model.closed for model in models] == [1, 1, 1]


def test_arguments() -> None:
    """No model, or an error that does not exist, is refused; the first model gives the name."""
    with pytest.raises(InvalidInput, match="at least one"):
        Fallback()
    with pytest.raises(InvalidInput, match="overlaoded"):
        Fallback(Fake(), on=["overlaoded"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    made = Fallback(Fake("a"), Fake("b"))
    assert made.name == "a"
    assert repr(made).startswith("Fallback(Fake(")
