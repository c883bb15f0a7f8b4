"""What fits, what it saves and what is wrong with the settings, before a start.

    request (what is asked) -> plan (figures, findings, commands) -> text or JSON

Every figure about host memory comes from the code that a starting server runs:
``layout``, ``index.capacity`` and ``config``. Nothing here needs the engine.
"""

from kvcellar.plan.plan import Plan, make_plan
from kvcellar.plan.request import EngineLimits, PlanRequest, Traffic
from kvcellar.plan.shape import ServerShape

__all__ = [
    "EngineLimits",
    "Plan",
    "PlanRequest",
    "ServerShape",
    "Traffic",
    "make_plan",
]
