"""The app of the worker in compose.yaml: put your own in its place."""

import onejob

app = onejob.App()


@app.job("greet")
def greet(name: str) -> str:
    return f"Hello, {name}"
