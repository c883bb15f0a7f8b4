"""Plans from words, as a user types them."""

from typing import Any

from kvcellar.plan import Plan, make_plan
from kvcellar.plan.options import request_of


def plan_of(model: Any, **options: Any) -> Plan:
    """The plan for a model with options by name; numbers are typed as words."""
    words = {
        name: value if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    return make_plan(request_of({"model": model, **words}))


def names_of(plan: Plan) -> list[str]:
    """Names of everything that was found wrong."""
    return [finding.name for finding in plan.findings]
