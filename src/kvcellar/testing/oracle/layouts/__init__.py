"""Cache layouts that the oracle runs on: published models and odd geometries.

Every layout is planned by the engine's own, unmodified code from the layers' specs.
"""

from kvcellar.testing.oracle.layouts.build import (
    LAYOUT_NAMES,
    OracleLayout,
    build,
    num_layers_of,
)

__all__ = ["LAYOUT_NAMES", "OracleLayout", "build", "num_layers_of"]
