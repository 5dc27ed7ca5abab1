"""What a check of an SDK says when something is not as it should be."""


def expect(held, what):
    if not held:
        raise SystemExit(f"FAILED: {what}")


def raised(error, call):
    try:
        call()
    except error as caught:
        return caught
    raise SystemExit(f"FAILED: {error.__name__} was not raised")
