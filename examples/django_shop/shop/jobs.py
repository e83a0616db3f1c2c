"""The jobs of the shop: `python manage.py onejob_worker` runs them."""

import onejob

app = onejob.App()


@app.job("send_invoice")
def send_invoice(input: dict[str, int]) -> dict[str, str]:
    from .models import Payment  # imported here, because Django is set up by then

    payment = Payment.objects.get(pk=input["payment"])
    return {"sent": f"invoice for {payment.amount}"}
