"""Typed values in submissions, handlers and results: models of Pydantic, Structs, dataclasses, TypedDicts."""

import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

import onejob
import onejob.sync
from onejob import App, JobState
from onejob.client.requests import derived_key, submit_call
from onejob.core.typed_json import JsonMismatch, build_json_decoder
from onejob.middleware import idempotent

LONG = timedelta(seconds=20)


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal = Decimal("1.50")


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    amount: Annotated[int, pydantic.Field(gt=0)]
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    lines: list[Line] = []
    order_id: str = pydantic.Field(default="o-1", alias="orderId")


class Struct(msgspec.Struct):
    amount: int
    lines: list[Line] = []


@dataclass
class Plain:
    amount: int


@pydantic.dataclasses.dataclass
class Checked:
    amount: Annotated[int, pydantic.Field(gt=0)]


class Typed(TypedDict):
    amount: int


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    amount: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    amount: int


VALUES: list[tuple[Any, Any]] = [
    (Order, Order(amount=1, lines=[Line(sku="a")], orderId="o-2")),
    (Order | None, Order(amount=1)),
    (list[Order], [Order(amount=1), Order(amount=2)]),
    (dict[str, Line], {"a": Line(sku="a")}),
    (Struct, Struct(1, [Line(sku="a")])),
    (list[Struct], [Struct(1, [Line(sku="a")])]),
    (Plain, Plain(1)),
    (Checked, Checked(1)),
    (Typed, Typed(amount=1)),
    (Cat | Dog, Dog(amount=1)),
    (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], Cat(amount=1)),
]


@pytest.fixture
async def queue() -> AsyncIterator[onejob.Ledger]:
    async with onejob.open("memory://") as ledger:
        yield ledger


async def run_job(app: App, queue: onejob.Ledger, type: str, input: Any) -> onejob.Job:
    made = await queue.submit(type, input, max_attempts=1)
    async with app.background_worker(queue):
        return await queue.wait(made.job_id, LONG)


@pytest.mark.parametrize(("shape", "value"), VALUES, ids=str)
async def test_a_typed_value_is_submitted_handled_and_returned(queue: onejob.Ledger, shape: Any, value: Any) -> None:
    app = App()
    seen: list[Any] = []

    async def handle(order: Any) -> Any:
        seen.append(order)
        return order

    handle.__annotations__.update({"order": shape, "return": shape})
    handler = app.job("t")(handle)
    job = await run_job(app, queue, "t", value)
    assert (job.state, seen) == (JobState.SUCCESS, [value]), job.error
    assert build_json_decoder(shape)(await queue.result_json(job.id)) == value
    # Also through the handler, under the same key: the same input.
    first = await queue.submit("t", value, idempotency_key="k")
    assert (await handler.submit(queue, value, idempotency_key="k")).job_id == first.job_id


async def test_a_model_and_its_json_are_the_same_input(queue: onejob.Ledger) -> None:
    made = await queue.submit("t", Line(sku="a"), idempotency_key="k")
    again = await queue.submit("t", {"price": "1.50", "sku": "a"}, idempotency_key="k")
    assert again.job_id == made.job_id
    with pytest.raises(onejob.IdempotencyConflict) as caught:
        await queue.submit("t", Line(sku="b"), idempotency_key="k")
    assert caught.value.paths == ("/input/sku",)


def test_a_client_sends_a_model_as_its_json() -> None:
    submission = onejob.Submission(type="t", input=Order(amount=3, orderId="o-9"))
    body = msgspec.json.decode(submit_call(submission, "k").body)
    assert (body["input"]["amount"], body["input"]["orderId"]) == (3, "o-9")
    assert derived_key("t", submission.input, ["orderId"]) == derived_key("t", {"orderId": "o-9"}, ["orderId"])


@pytest.mark.parametrize(
    ("shape", "input", "place"),
    [
        (Order, {"amount": "my secret"}, "$.amount"),
        (Order, {"amount": -1}, "$.amount"),
        (Order, {"amount": 1, "lines": [{"sku": "a"}, {"sku": 7777}]}, "$.lines[1].sku"),
        (Struct, {"amount": 1, "lines": [{"sku": 7777}]}, "$.lines[0].sku"),
        (Checked, {"amount": -1}, "$.amount"),
        (Plain, {"amount": "my secret"}, "$.amount"),
        (Plain, 7777, "$"),
    ],
)
async def test_an_input_that_does_not_match_fails_for_good_with_the_place_and_not_the_value(
    queue: onejob.Ledger, shape: Any, input: Any, place: str
) -> None:
    app = App()

    async def handle(order: Any) -> None:
        raise AssertionError("must not run")

    handle.__annotations__["order"] = shape
    app.job("t")(handle)
    job = await run_job(app, queue, "t", input)
    assert job.state is JobState.FAILED
    assert f"`{place}`" in str(job.error)
    assert "secret" not in str(job.error)
    assert "7777" not in str(job.error)


class Opaque:
    pass


class HasOpaque(msgspec.Struct):
    inner: list[Opaque]


@pytest.mark.parametrize("shape", [Opaque, list[Opaque], HasOpaque, Opaque | None, Plain | Struct], ids=str)
def test_a_handler_whose_input_cannot_be_converted_is_refused_at_registration(shape: Any) -> None:
    def handle(order: Any) -> None: ...

    handle.__annotations__["order"] = shape
    with pytest.raises(onejob.Invalid, match="the input of its handler cannot be read from JSON"):
        App().job("t")(handle)


@pytest.mark.parametrize("shape", [Opaque, list[Opaque], HasOpaque, Path], ids=str)
def test_a_handler_whose_result_cannot_be_converted_is_refused_at_registration(shape: Any) -> None:
    def handle() -> Any: ...

    handle.__annotations__["return"] = shape
    with pytest.raises(onejob.Invalid, match="the result of its handler cannot be written as JSON"):
        App().job("t")(handle)


@pytest.mark.parametrize("shape", [None, Any, object, Plain | Struct, Cat | Dog, dict[str, object]], ids=str)
def test_a_handler_may_return_any_json(shape: Any) -> None:
    def handle() -> Any: ...

    handle.__annotations__["return"] = shape
    App().job("t")(handle)


def test_a_handler_with_an_unknown_annotation_is_refused_at_registration() -> None:
    def handle(order: Any) -> None: ...

    handle.__annotations__["order"] = "Nowhere"
    with pytest.raises(onejob.Invalid, match="Nowhere"):
        App().job("t")(handle)


async def test_a_model_inside_a_struct_is_progress_too(queue: onejob.Ledger) -> None:
    await queue.submit("t")
    (attempt,) = await queue.claim("t", start=True)
    attempt = await queue.extend(attempt, progress=Line(sku="a"))
    assert attempt.job_row.progress == '{"sku":"a","price":"1.50"}'


def test_an_idempotent_function_returns_its_model_from_a_replay() -> None:
    with onejob.sync.open("memory://") as ledger:
        calls: list[int] = []

        @idempotent(ledger, key=lambda amount: f"k-{amount}", scope="u", returns=Cat)
        def charge(amount: int) -> Cat:
            calls.append(amount)
            return Cat(amount=amount)

        assert charge(1) == charge(1) == Cat(amount=1)
        assert calls == [1]


def test_a_mismatch_names_a_place() -> None:
    with pytest.raises(JsonMismatch, match=r"at `\$\.amount`"):
        build_json_decoder(Plain)(b'{"amount":"x"}')


def test_pydantic_is_not_loaded_by_onejob() -> None:
    program = "import onejob, sys; onejob.App().job('t')(lambda: None); sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
