"""Quotas over HTTP: limits of users and of the tenant for admins, what is used of them for everybody."""

from onejob.core.limits import Limits, TenantLimits
from onejob.core.roles import Permission
from onejob.quotas import user_name

from .answers import Response, json_response
from .problems import Forbidden
from .quota_wire import (
    LimitsBody,
    QuotaOut,
    TenantLimitsBody,
    TenantQuotaOut,
    UsageOut,
    limits_from,
    quota_out,
    tenant_quota_out,
    usage_out,
)
from .request import Request
from .routes import Parameter, Route
from .shapes import NAME


async def get_quota(request: Request) -> Response:
    request.query()
    return json_response(200, quota_out(await request.ledger.quota(request.path_params[0]), request.id))


async def set_quota(request: Request) -> Response:
    """Idempotent by itself: a key in the header is accepted and changes nothing."""
    request.key()
    request.query()
    limits = limits_from(await request.decode_body(LimitsBody))
    return json_response(
        200, quota_out(await request.ledger.set_quota(request.path_params[0], limits), request.id)
    )


async def clear_quota(request: Request) -> Response:
    request.key()
    request.query()
    await request.require_no_body()
    return json_response(
        200, quota_out(await request.ledger.set_quota(request.path_params[0], Limits()), request.id)
    )


async def get_tenant_quota(request: Request) -> Response:
    request.query()
    return json_response(200, tenant_quota_out(await request.ledger.tenant_quota(), request.id))


async def set_tenant_quota(request: Request) -> Response:
    request.key()
    request.query()
    body = await request.decode_body(TenantLimitsBody)
    limits = TenantLimits(limits_from(body.default), limits_from(body.ceiling))
    return json_response(200, tenant_quota_out(await request.ledger.set_tenant_quota(limits), request.id))


async def get_usage(request: Request) -> Response:
    user = resolve_user(request, request.query("user").get("user"))
    return json_response(200, usage_out(await request.ledger.usage(user), request.id))


def resolve_user(request: Request, user: str | None) -> str:
    """The user that is asked about: whoever asks, or another for those who oversee."""
    own = request.credential.caller.user
    if user is None or user_name(user) == own:
        return own
    if not request.credential.may(Permission.OVERSEE):
        raise Forbidden("this is for yourself only; leave the user out, or ask an operator")
    return user


USER = Parameter("user", "whose; the own unless you oversee others", NAME)

ROUTES = (
    Route(
        "GET",
        "/api/quotas",
        get_tenant_quota,
        Permission.ADMINISTER,
        "Look at the tenant's default and ceiling",
        None,
        TenantQuotaOut,
    ),
    Route(
        "PUT",
        "/api/quotas",
        set_tenant_quota,
        Permission.ADMINISTER,
        "Set the limits of users without their own, and the ceiling over all",
        TenantLimitsBody,
        TenantQuotaOut,
        takes_key=True,
    ),
    Route(
        "GET",
        "/api/quotas/{user}",
        get_quota,
        Permission.ADMINISTER,
        "Look at the limits of a user",
        None,
        QuotaOut,
    ),
    Route(
        "PUT",
        "/api/quotas/{user}",
        set_quota,
        Permission.ADMINISTER,
        "Give a user limits of its own, instead of those before",
        LimitsBody,
        QuotaOut,
        takes_key=True,
    ),
    Route(
        "DELETE",
        "/api/quotas/{user}",
        clear_quota,
        Permission.ADMINISTER,
        "Let the tenant's default hold for a user again",
        None,
        QuotaOut,
        takes_key=True,
    ),
    Route(
        "GET",
        "/api/usage",
        get_usage,
        Permission.READ,
        "See what you hold, spend and may",
        None,
        UsageOut,
        query=(USER,),
        errors=("FORBIDDEN",),
    ),
)
