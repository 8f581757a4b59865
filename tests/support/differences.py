"""Lists of the tests that are expected to fail, each with a reason, and the comparison of a run with such a list."""


def differences(path):
    """The reasons of the listed tests, by unit and name."""
    reasons, reason = {}, None
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            unit, test = line.split(": ", 1)
            assert reason and (unit, test) not in reasons, line
            reasons[unit, test] = reason
    return reasons


def unexpected(failed, reasons, suite=""):
    """What differs from the list: the tests that fail without a reason, and those that are listed and do not fail."""
    suite = f"{suite}: " if suite else ""
    return [
        *(f"fails without a reason: {suite}{unit}: {name}" for unit, name in sorted(failed - reasons.keys())),
        *(f"does not fail, though it is listed: {suite}{unit}: {name}" for unit, name in sorted(reasons.keys() - failed)),
    ]
