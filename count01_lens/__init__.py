"""Find out what each attention head does: a TransformerLens toolkit, worked out on Count01.

>>> import count01_lens as cl
>>> model = cl.example_model()
>>> cl.verify(model, up_to=20).accuracy
1.0
"""

import lazy_loader

# Importing torch takes seconds, TransformerLens more. Each public name is imported when it is
# first used, so that `import count01_lens` and `count01-lens --help` are instant. The names are
# listed in `__init__.pyi`, and nowhere else.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.2.0"
