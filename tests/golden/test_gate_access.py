"""What the holder of a gate credential may do, on record: every command and query, for every tenant and system policy."""

import asyncio
from collections.abc import Iterator, Mapping
from enum import EnumType
from random import Random
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Struct, json, msgpack
from msgspec.structs import replace

from onejob.clock import FakeClock
from onejob.core.credentials import SetPolicy
from onejob.core.facts import JOB_ID_BYTES, Kind, Policy
from onejob.core.gate_keys import gate_key_policy_name
from onejob.core.identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT, policy_id
from onejob.core.lookup import DryRun, LookUpJob
from onejob.core.maintenance import ERASURE_POLICY_NAME
from onejob.core.submit import Submit
from onejob.engine import GateSettings, ListFacts
from onejob.engines.memory import MemoryEngine
from onejob.engines.remote.codec import COMMANDS, QUERIES, WireCodec, decode_page, encode_struct, split_generation
from onejob.engines.remote.messages import (
    FAILURE,
    WIRE_VERSION,
    BarrierRequest,
    HelloRequest,
    TokenRequest,
)
from onejob.ids import SeededIds
from onejob.ledger.sessions import SESSION_POLICY_PREFIX
from onejob.manager.gate_keys import GateKeys
from onejob.manager.ledger import ManagerIdempotencyLedger, WireRequest, WireResponse
from onejob.runtime import READY_POLICY_NAME
from onejob.runtime.external_keys import STORED_KEYS_POLICY_NAME
from onejob.runtime.settings import CHANGES_POLICY_NAME
from onejob.runtime.workers import WORKER_POLICY_PREFIX

from .conftest import GoldenCheck

OWN, OTHER = "acme", "globex"
TENANTS = {"no tenant": SYSTEM_TENANT, "its tenant": OWN, "another": OTHER}
KNOWN = {"since": 1, "until": 4_000_000_000_000}
POLICIES = {
    gate_key_policy_name("0" * 12): b"{}",
    SETTINGS_POLICY_NAME: b"{}",
    CHANGES_POLICY_NAME: b"{}",
    READY_POLICY_NAME: b"",
    ERASURE_POLICY_NAME: b"e" * 64,
    STORED_KEYS_POLICY_NAME: json.encode({"": KNOWN, OWN: KNOWN, OTHER: KNOWN}),
    f"{WORKER_POLICY_PREFIX}w1": b"{}",
    f"{SESSION_POLICY_PREFIX}s1": b"{}",
    "anything": b"{}",
}
# Whose credential: its tenants, and whether it is that of another data centre. The first holder sends none.
HOLDERS: dict[str, tuple[tuple[str, ...], bool] | None] = {
    "without": None,
    "all": ((), False),
    "acme": ((OWN,), False),
    "site": ((OWN,), True),
}
CODEC = WireCodec()


class Case(NamedTuple):
    name: str
    path: str
    body: bytes
    query: Any = None


def test_what_a_gate_credential_may_do(golden: GoldenCheck) -> None:
    """A line per request: the numbers of the answers that the holders get. The answers follow."""
    lines = [f"{'request':48}" + "".join(f"{name:>8}" for name in HOLDERS)]
    numbers: dict[str, int] = {}
    for case in (*policy_cases(), *command_cases(), *query_cases(), *other_cases()):
        answers = [asyncio.run(answer_to(case, holder)) for holder in HOLDERS.values()]
        lines.append(f"{case.name:48}" + "".join(f"{numbers.setdefault(one, len(numbers) + 1):8}" for one in answers))
    lines += ["", *(f"{number:3}  {answer}" for answer, number in numbers.items())]
    golden("gate_access.txt", "\n".join(lines) + "\n")


def policy_cases() -> Iterator[Case]:
    """The commands on each policy of the system tenant. One is written with its own body, and under another name."""
    for name in (*POLICIES, "absent"):
        id = policy_id(SYSTEM_TENANT, name)
        shown = "gate/KEY" if name.startswith("gate/") else name
        bodies = {f"{size} bytes": b"x" * size for size in (0, 64, 65)}
        for size, body in bodies.items():
            yield execute_case(f"SetPolicy {shown}, {size}", SetPolicy(tenant="", policy_id=id, name=name, body=body))
        yield execute_case(f"SetPolicy {shown}, misnamed", SetPolicy(tenant="", policy_id=id, name="other", body=b""))
        for kind in COMMANDS:
            if "policy_id" in kind.__struct_fields__ and kind is not SetPolicy:
                yield execute_case(f"{tag_of(kind)} {shown}", fill(kind, tenant="", policy_id=id))


def command_cases() -> Iterator[Case]:
    for kind in COMMANDS:
        for place, tenant in TENANTS.items():
            yield execute_case(f"{tag_of(kind)} of {place}", fill(kind, tenant=tenant))
    probe = fill(LookUpJob, tenant="")
    yield execute_case("LookUpJob, a probe", replace(probe, job_id=bytes(JOB_ID_BYTES)))
    foreign = fill(Submit, tenant=OTHER)
    yield execute_case("DryRun of another's submission", replace(fill(DryRun, tenant=OWN), command=foreign))
    yield Case("a command that is not known", "/execute", encode_struct([{"is": "Newer", "tenant": OWN}]))


def query_cases() -> Iterator[Case]:
    for kind in QUERIES:
        for place, tenant in TENANTS.items() if "tenant" in kind.__struct_fields__ else {"": ""}.items():
            query = fill(kind, tenant=tenant)
            yield Case(f"{tag_of(kind)} {place}", "/scan", CODEC.encode_query(query), query)
    for fact in Kind:
        query = ListFacts(tenant=SYSTEM_TENANT, kind=fact)
        yield Case(f"ListFacts {fact.name}", "/scan", CODEC.encode_query(query), query)


def other_cases() -> Iterator[Case]:
    for place, tenant in {**TENANTS, "all": None}.items():
        yield Case(f"barrier of {place}", "/barrier", encode_struct(BarrierRequest(tenant)))
        if tenant is not None:
            yield Case(f"tokens of {place}", "/tokens", encode_struct(TokenRequest(tenant, "client:x", 1, 1)))
    yield Case("hello", "/hello", encode_struct(HelloRequest(WIRE_VERSION, WIRE_VERSION)))
    yield Case("another path", "/other", b"")


def execute_case(name: str, command: Any) -> Case:
    return Case(name, "/execute", CODEC.encode_commands([command]))


def tag_of(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag or kind.__name__)


def fill(kind: type[Struct], **given: Any) -> Any:
    """A value of a kind, from what its fields need at least."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    tenant = given.get("tenant", "")
    values = {name: value_of(field.type, tenant) for name, field in fields.items() if field.required}
    values |= {name: value for name, value in given.items() if name in fields}
    return kind(**values)


def value_of(annotation: Any, tenant: str) -> Any:
    kinds = [annotation, *get_args(annotation)]
    struct = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)), None)
    if struct is not None:
        value = fill(struct, tenant=tenant)
        return (value,) if get_origin(annotation) is tuple else value
    if isinstance(annotation, EnumType):
        return next(iter(annotation))
    annotation = getattr(annotation, "__supertype__", annotation)  # of a NewType
    samples: dict[Any, Any] = {str: "client:x", bytes: b"1" * JOB_ID_BYTES, int: 1, bool: False}
    if annotation in samples:
        return samples[annotation]
    return {} if get_origin(annotation) is Mapping else ()


async def answer_to(case: Case, holder: tuple[tuple[str, ...], bool] | None) -> str:
    """A manager of its own answers each request, so that none sees what another wrote."""
    store = MemoryEngine(FakeClock())
    gate_key = ""
    if holder is not None:
        tenants, is_site = holder
        keys = GateKeys(store, SeededIds(Random(1)), actor="client:a")
        gate_key = (await keys.create("k", tenants=tenants, is_site=is_site)).text
    for name, body in POLICIES.items():
        id = policy_id(SYSTEM_TENANT, name)
        await store.execute([SetPolicy(tenant=SYSTEM_TENANT, policy_id=id, name=name, body=body)])
    ledger = ManagerIdempotencyLedger(
        store, clock=FakeClock(), settings=GateSettings(), needs_gate_key=False, needs_settings=False
    )
    request = WireRequest(case.path, case.body, str(WIRE_VERSION), store.info.ledger_id, gate_key)
    response = await ledger.respond(request)
    await ledger.aclose()
    return describe(case, response)


def describe(case: Case, response: WireResponse) -> str:
    kind, payload = response.frame[:1], response.frame[1:]
    if kind == FAILURE:
        return f"{response.status}: {msgpack.decode(payload)['message']}"
    if case.path == "/hello":
        return f"hello, {response.body_bytes_max} bytes at once"
    payload = split_generation(payload)[1]
    if case.path == "/scan":
        items = decode_page(payload, case.query).items
        return ", ".join(describe_item(item) for item in items) or "nothing"
    if case.path == "/execute":
        (answer,) = msgpack.decode(payload)
        return describe_answer(answer)
    return str(msgpack.decode(payload)) if payload else "done"


def describe_answer(answer: dict[str, Any]) -> str:
    if answer["is"] == "PolicyFound":
        return f"PolicyFound {describe_policy(answer['policy'])}"
    # The library that decodes words the details, in brackets.
    return f"{answer['is']}: {answer['message'].partition(' (')[0]}" if "message" in answer else str(answer["is"])


def describe_policy(policy: dict[str, Any]) -> str:
    name = "gate/KEY" if policy["name"].startswith("gate/") else policy["name"]
    return f"{name or 'hidden'} {policy['body'].decode() if name == STORED_KEYS_POLICY_NAME else len(policy['body'])}"


def describe_item(item: Any) -> str:
    return describe_policy(msgspec.structs.asdict(item)) if isinstance(item, Policy) else str(item)
