"""Placing an order, and paying it once: whatever happens to the process, the connection or the client."""

import json

from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_POST

from onejob.django import in_transaction, once

from .models import Order, Payment


def customer(request: HttpRequest) -> str | None:
    """Whose keys they are. This example believes a header; a shop authenticates its customers."""
    return request.headers.get("X-Customer")


@require_POST
@once(key="required", atomic=True)
def place(request: HttpRequest) -> JsonResponse:
    order = Order.objects.create(amount=json.loads(request.body)["amount"])
    return JsonResponse({"order": order.pk}, status=201)


@require_POST
@once(key="required", atomic=True)
def pay(request: HttpRequest, order: int) -> JsonResponse:
    """The payment, the job and the answer are one commit."""
    found = get_object_or_404(Order, pk=order)
    payment = Payment.objects.create(order=found, amount=found.amount)
    receipt = in_transaction().submit("send_invoice", {"payment": payment.pk}, idempotency_key=f"invoice-{payment.pk}")
    return JsonResponse({"payment": payment.pk, "job": receipt.job_id}, status=201)
