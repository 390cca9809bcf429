"""A simulated SGLang engine: the same API and the same answers, with drawn lengths and a modelled decode speed.

`Simulator` serves one engine inside this process, `cli.main` as a process of its own; `lengths` is the pure model
of how long answers are. engine.py is the scheduler, service.py what it answers, generate.py and control.py its
routes.
"""

from deploy.simulator.faults import Faults
from deploy.simulator.lengths import LengthModel, Lognormal, Trace
from deploy.simulator.server import Simulator
from deploy.simulator.settings import SimulatorSettings

__all__ = ["Faults", "LengthModel", "Lognormal", "Simulator", "SimulatorSettings", "Trace"]
