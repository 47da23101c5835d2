"""Read a setup.cfg with `description-file`, as thousands of packages have it."""

import os
import tempfile
import warnings
from pathlib import Path

from setuptools import Distribution

warnings.simplefilter("ignore")
os.chdir(tempfile.mkdtemp())
Path("setup.cfg").write_text("[metadata]\nname = example\ndescription-file = README.md\n", encoding="ascii")
Distribution({"name": "example"}).parse_config_files()
print("read: 1")
