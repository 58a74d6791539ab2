"""What a fork server runs of an attack, in a build that is broken on purpose.

The environment says which attack and which sabotage: `tests.attacks.faults:no_atomic_rename`.
"""

import importlib
import os

import pytest

from tests.attacks import sabotages

module, sabotage = os.environ[sabotages.BROKEN].split(":")
TASKS = importlib.import_module(module).TASKS
getattr(sabotages, sabotage)(pytest.MonkeyPatch())
